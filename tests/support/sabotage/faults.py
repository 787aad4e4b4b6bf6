"""The faults: each replaces one function of a replica in the process that calls it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec


def slot_off_by_one() -> None:
    """The adapted layer reads the slot after each row's own."""
    from services.replica_worker.engine.torch.kernels.cpu import CpuKernels

    adapt = CpuKernels.adapt

    def one_further(self: CpuKernels, y: Any, x: Any, stacks: Any, packed: Any, parts: Sequence[Any]) -> None:
        slots = len(stacks.places)
        adapt(self, y, x, stacks, packed, [part._replace(slots=(part.slots + 1) % slots) for part in parts])

    CpuKernels.adapt = one_further  # type: ignore[method-assign]


def digests_swapped() -> None:
    """Whatever is read into RAM changes its weights with what was read before it; both keep their names."""
    from services.replica_worker.tiers.ram import RamTier

    bring = RamTier._bring

    async def swapped(self: RamTier, record: Any) -> Any:
        await bring(self, record)
        hosts: dict[Any, Any] = self._hosts
        if len(hosts) > 1:
            before, after = list(hosts)[-2], record.key
            one, other = hosts[before], hosts[after]
            hosts[before] = msgspec.structs.replace(other, spec=one.spec)
            hosts[after] = msgspec.structs.replace(one, spec=other.spec)
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
