"""Which gateways are still there to receive what was asked for in their name."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class GatewayLeases:
    """A gateway's lease lasts `silence_s` from the last thing that was heard of it. What it missed meanwhile
    is kept for `keep_s` longer: it may have lost the bus, and not its life."""

    silence_s: float = 3.0
    keep_s: float = 60.0
    _heard_at_s: dict[str, float] = field(default_factory=dict)
    _lapsed_at_s: dict[str, float] = field(default_factory=dict)

    def heard(self, gateway_id: str, now_s: float) -> bool:
        """A report, a request, a cancel or a replay: all prove that it lives. True if it had been given up."""
        self._heard_at_s[gateway_id] = now_s
        return self._lapsed_at_s.pop(gateway_id, None) is not None

    def renew_all(self, now_s: float) -> None:
        """This worker could not hear anyone, so nobody's silence counts."""
        self._heard_at_s = dict.fromkeys(self._heard_at_s, now_s)

    def take_lapsed(self, now_s: float) -> tuple[str, ...]:
        """Gateways whose lease is over; each is told once."""
        lapsed = _older(self._heard_at_s, now_s - self.silence_s)
        for gateway_id in lapsed:
            del self._heard_at_s[gateway_id]
            self._lapsed_at_s[gateway_id] = now_s
        return lapsed

    def take_gone(self, now_s: float) -> tuple[str, ...]:
        """Gateways that did not come back; each is told once."""
        gone = _older(self._lapsed_at_s, now_s - self.keep_s)
        for gateway_id in gone:
            del self._lapsed_at_s[gateway_id]
        return gone


def _older(times_s: dict[str, float], than_s: float) -> tuple[str, ...]:
    return tuple(gateway_id for gateway_id, at_s in times_s.items() if at_s < than_s)
