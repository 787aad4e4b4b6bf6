"""Which gateways there are, by their reports."""

from __future__ import annotations

FRESH_S = 3.0
"""As long as workers believe in a gateway that is silent."""


class Company:
    def __init__(self, gateway_id: str) -> None:
        self._own = gateway_id
        self._heard_at_s: dict[str, float] = {}

    def heard(self, gateway_id: str, now_s: float) -> None:
        self._heard_at_s[gateway_id] = now_s

    def count(self, now_s: float) -> int:
        """This one included, whoever else was heard lately."""
        self._heard_at_s = {each: at_s for each, at_s in self._heard_at_s.items() if now_s - at_s <= FRESH_S}
        return len(self._heard_at_s.keys() | {self._own})
