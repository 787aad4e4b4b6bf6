"""The faults: each replaces one function of a replica in the process that calls it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any


def slot_off_by_one() -> None:
    """The adapted layer reads the slot after each row's own."""
    from services.replica_worker.engine.port import BASE_SLOT
    from services.replica_worker.engine.torch.lora import AdaptedRows
    from services.replica_worker.engine.torch.slots import AdapterSlots

    right_rows, right_init, slots = AdaptedRows.of, AdapterSlots.__init__, [1]

    def init(self: AdapterSlots, config: Any, count: int, *others: Any) -> None:
        slots[0] = max(slots[0], count)
        right_init(self, config, count, *others)

    def rows(slot_of_row: Sequence[int], *others: Any) -> AdaptedRows | None:
        wrong = [slot if slot == BASE_SLOT else (slot + 1) % slots[0] for slot in slot_of_row]
        return right_rows(wrong, *others)

    AdapterSlots.__init__ = init  # type: ignore[method-assign]
    AdaptedRows.of = rows  # type: ignore[method-assign,assignment]


def digests_swapped() -> None:
    """Whatever is read into RAM changes places with what was read before it."""
    from services.replica_worker.tiers.ram import RamTier

    bring = RamTier._bring

    async def swapped(self: RamTier, record: Any) -> Any:
        await bring(self, record)
        hosts = self._hosts
        if len(hosts) > 1:
            before = list(hosts)[-2]
            hosts[before], hosts[record.key] = hosts[record.key], hosts[before]
        return hosts[record.key]

    RamTier._bring = swapped  # type: ignore[method-assign]


def prefixes_shared() -> None:
    """The prefix cache does not ask which adapter has computed a block."""
    from services.replica_worker.engine import sequence

    extend = sequence.extend_keys

    def without_digest(keys: Any, digest: str, *others: Any) -> None:
        extend(keys, "", *others)

    sequence.extend_keys = without_digest


def no_proof() -> None:
    """No fault by itself: whatever a slot does is taken for right, so that a fault gets as far as the answers."""
    from services.replica_worker.tiers.effect import Effects

    async def believe(self: Effects, record: Any, slot: int, asked: Awaitable[Any]) -> None:
        await asked

    Effects.check = believe  # type: ignore[method-assign]


FAULTS: Mapping[str, Callable[[], None]] = {
    plant.__name__: plant for plant in (slot_off_by_one, digests_swapped, prefixes_shared, no_proof)
}
