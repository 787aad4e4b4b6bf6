"""The ledger of limits on paper: what the script in Redis does, by a clock that the test holds."""

from __future__ import annotations

from collections import defaultdict

from services.gateway.core.allowance import (
    WINDOW_SLOTS,
    Ask,
    Grant,
    PlacesAsk,
    PlacesGrant,
    WindowAsk,
    WindowGrant,
)


class PaperLedger:
    def __init__(self, epoch: str = "paper") -> None:
        self.epoch = epoch
        self._slots: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
        self._held: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)

    def answer(self, ask: Ask) -> Grant:
        assert ask.now_ms is not None, "paper has no clock of its own"
        if ask.epoch != self.epoch:
            return Grant(epoch=self.epoch, now_ms=ask.now_ms, stale=True)
        return Grant(
            epoch=self.epoch, now_ms=ask.now_ms,
            requests=self._window((ask.subject, "requests"), ask.requests, ask.now_ms) if ask.requests else None,
            tokens=self._window((ask.subject, "tokens"), ask.tokens, ask.now_ms) if ask.tokens else None,
            streams=self._places(ask, ask.streams, ask.now_ms) if ask.streams else None,
        )  # fmt: skip

    def used(self, subject: str, kind: str) -> int:
        return sum(self._slots[subject, kind].values())

    def held(self, subject: str) -> int:
        """Places, by all gateways together."""
        return sum(count for count, _ in self._held[subject].values())

    def _window(self, of: tuple[str, str], ask: WindowAsk, now_ms: int) -> WindowGrant:
        slot = now_ms // 1000
        slots = {at: count for at, count in self._slots[of].items() if at >= slot - WINDOW_SLOTS}
        self._slots[of] = slots
        for at, count in ask.add.items():
            if (at := min(at, slot)) >= slot - WINDOW_SLOTS:
                slots[at] = slots.get(at, 0) + count
        room = ask.limit - sum(slots.values())
        granted = max(0, min(ask.want, room))
        wait_ms = 0
        if granted < ask.least:
            granted, wait_ms = 0, max(1, _free_at(slots, room, ask.least, slot) * 1000 - now_ms)
        if granted:
            slots[slot] = slots.get(slot, 0) + granted
        ends = [(at + WINDOW_SLOTS + 1) * 1000 - now_ms for at, count in slots.items() if count > 0]
        return WindowGrant(granted=granted, used=sum(slots.values()), wait_ms=wait_ms, reset_ms=max(ends, default=0))

    def _places(self, ask: Ask, places: PlacesAsk, now_ms: int) -> PlacesGrant:
        held = self._held[ask.subject]
        for gateway, (_, until_ms) in list(held.items()):
            if until_ms <= now_ms:
                del held[gateway]
        others = sum(count for gateway, (count, _) in held.items() if gateway != ask.gateway)
        granted = max(places.used, min(places.want, places.limit - others))
        held.pop(ask.gateway, None)
        if granted > 0:
            held[ask.gateway] = (granted, now_ms + ask.places_ms)
        return PlacesGrant(held=granted)


def _free_at(slots: dict[int, int], room: int, least: int, slot: int) -> int:
    for at in sorted(slots):
        room += slots[at]
        if room >= least:
            return at + WINDOW_SLOTS + 1
    return slot + WINDOW_SLOTS + 1
