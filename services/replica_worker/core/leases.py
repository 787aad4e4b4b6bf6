"""Which gateways are still there to receive what was asked for in their name."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class GatewayLeases:
    """A gateway's lease lasts `silence_s` from the last thing that was heard of it."""

    silence_s: float = 3.0
    _heard_at_s: dict[str, float] = field(default_factory=dict)

    def heard(self, gateway_id: str, now_s: float) -> None:
        """A report, a request, a cancel or a replay: all prove that it lives."""
        self._heard_at_s[gateway_id] = now_s

    def renew_all(self, now_s: float) -> None:
        """This worker could not hear anyone, so nobody's silence counts."""
        self._heard_at_s = dict.fromkeys(self._heard_at_s, now_s)

    def take_lapsed(self, now_s: float) -> tuple[str, ...]:
        """Gateways whose lease is over; each is told once."""
        lapsed = tuple(name for name, at_s in self._heard_at_s.items() if now_s - at_s > self.silence_s)
        for name in lapsed:
            del self._heard_at_s[name]
        return lapsed
