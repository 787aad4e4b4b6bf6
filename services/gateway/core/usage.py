"""Usage on its way to the bus: in batches, each sent until the bus has it, in memory that is bounded."""

from __future__ import annotations

from collections import deque

import msgspec

from shared.messages.usage import UsageBatch, UsageRecord


class UsagePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`batch_records` bounds a message, `most_records` all that is kept while the bus is away."""

    batch_records: int = 100
    most_records: int = 50_000


class UsageQueue:
    """Records in the order in which requests ended. A batch that was taken stays the same, number and records, until
    it is `sent`: whoever gets it twice can tell. When there is no more room the oldest record goes that is not in a
    batch yet, and `lost` counts it."""

    def __init__(self, gateway_id: str, policy: UsagePolicy) -> None:
        self._gateway_id = gateway_id
        self._policy = policy
        self._waiting: deque[UsageRecord] = deque()
        self._batch: UsageBatch | None = None
        self._sequence = 0
        self.lost = 0

    def __len__(self) -> int:
        return len(self._waiting) + (len(self._batch.records) if self._batch is not None else 0)

    def add(self, record: UsageRecord) -> bool:
        """Whether another one had to go for it."""
        self._waiting.append(record)
        if len(self) <= self._policy.most_records:
            return False
        self._waiting.popleft()
        self.lost += 1
        return True

    def batch(self) -> UsageBatch | None:
        """What is to be sent now: the batch that the bus has not confirmed, else the oldest records, if any."""
        if self._batch is None and self._waiting:
            self._sequence += 1
            count = min(len(self._waiting), self._policy.batch_records)
            records = tuple(self._waiting.popleft() for _ in range(count))
            self._batch = UsageBatch(gateway_id=self._gateway_id, sequence=self._sequence, records=records)
        return self._batch

    def sent(self) -> None:
        """The bus has the batch."""
        self._batch = None

    def give_up(self) -> int:
        """Lose everything that waits; how many records that was."""
        lost = len(self)
        self._waiting.clear()
        self._batch = None
        self.lost += lost
        return lost
