"""Adapters that failed for a reason of their own are not tried again at once, and less and less often."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from shared.messages.identity import AdapterKey


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """`final`: the adapter itself is at fault (a corrupt file), not its surroundings. `elsewhere`: another
    replica may do better. `quarantine`: what it did here is not what is on record."""

    reason: str
    final: bool
    elsewhere: bool = True
    quarantine: bool = False


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    why: Why
    attempts: int
    retry_at_s: float


@dataclass
class FailureMemory:
    first_s: float = 1.0
    final_first_s: float = 30.0
    longest_s: float = 600.0
    _failures: dict[AdapterKey, Failure] = field(default_factory=dict)

    def record(self, key: AdapterKey, why: Why, now_s: float) -> Failure:
        """The wait doubles with each failure in a row."""
        before = self._failures.get(key)
        attempts = before.attempts + 1 if before else 1
        first_s = self.final_first_s if why.final else self.first_s
        wait_s = min(self.longest_s, first_s * 2.0 ** min(attempts - 1, 30))
        failure = Failure(why=why, attempts=attempts, retry_at_s=now_s + wait_s)
        self._failures[key] = failure
        return failure

    def of(self, key: AdapterKey) -> Failure | None:
        """The last failure that was not forgiven, though another attempt may be due."""
        return self._failures.get(key)

    def blocking(self, key: AdapterKey, now_s: float) -> Failure | None:
        """The failure that forbids another attempt now, if there is one."""
        failure = self._failures.get(key)
        return failure if failure is not None and now_s < failure.retry_at_s else None

    def blocked(self, now_s: float) -> frozenset[AdapterKey]:
        return frozenset(key for key, failure in self._failures.items() if now_s < failure.retry_at_s)

    def quarantined(self, now_s: float) -> int:
        """How many adapters are refused for what they did here."""
        return sum(self._failures[key].why.quarantine for key in self.blocked(now_s))

    def forgive(self, key: AdapterKey) -> None:
        """It worked, its record changed, or an operator asks for another attempt."""
        self._failures.pop(key, None)
