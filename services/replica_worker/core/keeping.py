"""What an operator had loaded stays for a while, though nobody else wants it."""

from __future__ import annotations

from dataclasses import dataclass, field

from shared.messages.identity import AdapterKey

KEPT_S = 60.0
"""Time enough for whoever had it loaded to do what it is for: each request that comes keeps it by itself."""


@dataclass
class Keeping:
    _until_s: dict[AdapterKey, float] = field(default_factory=dict)

    def keep(self, key: AdapterKey, now_s: float) -> None:
        self._until_s[key] = now_s + KEPT_S

    def forget(self, key: AdapterKey) -> None:
        self._until_s.pop(key, None)

    def kept(self, now_s: float) -> frozenset[AdapterKey]:
        """Those whose time is not over."""
        self._until_s = {key: until_s for key, until_s in self._until_s.items() if now_s < until_s}
        return frozenset(self._until_s)
