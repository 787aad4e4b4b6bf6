"""Which adapter sits in which GPU slot, who uses it, and who may be evicted.

A slot with a reference, with a load or a clearing in flight, is never given to another adapter.
References count while the load is still running, so that nobody can take the slot between the end of a
load and the first token of the request that waited for it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from services.replica_worker.core.slot import Place, Slot, SlotState
from services.replica_worker.core.slot_decisions import Acquired, AllBusy, InUse, Loading, MustLoad, Resident
from services.replica_worker.core.turnover import Turnover
from shared.messages.identity import AdapterKey


@dataclass
class SlotTable:
    """The slots 0..count-1 of one engine; none where an adapter is merged in. Methods that are told of something
    impossible raise ValueError."""

    count: int
    awaited: Collection[AdapterKey] = field(init=False, default=frozenset())
    """Those that paused answers go on with: in use, and no more of them are without a slot than there are slots."""
    turnover: Turnover = field(init=False, default_factory=Turnover)
    _slots: list[Slot] = field(init=False)
    _slot_of: dict[AdapterKey, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError(f"a replica cannot have {self.count} slots")
        self._slots = [Slot(index) for index in range(self.count)]

    def acquire(self, key: AdapterKey, now_s: float) -> Acquired | AllBusy:
        """Take a reference on the slot of `key`, reserving one if it has none. Pair with `release`."""
        if (index := self._slot_of.get(key)) is not None:
            held = self._slots[index]
            if held.closing:
                return AllBusy(reason=f"slot {index} is being given to an adapter that has waited longer")
            return self._join(held, now_s)
        slot = self._free() or self._least_recently_used()
        if slot is None:
            return AllBusy(reason=f"all {self.count} slots have running requests or a load in flight")
        return self._reserve(slot, key, now_s)

    def acquire_free(self, key: AdapterKey, now_s: float) -> Acquired | AllBusy:
        """The same for background loads: takes empty slots only, evicts nobody."""
        if key not in self._slot_of and self._free() is None:
            return AllBusy(reason="no slot is empty, and a background load evicts nobody")
        return self.acquire(key, now_s)

    def release(self, slot: int, key: AdapterKey, now_s: float) -> None:
        """Give back one reference. After a failed load there is nothing left to give back."""
        held = self._slots[slot]
        if held.key != key or held.references < 1:
            raise ValueError(f"slot {slot} has no reference of {key.adapter_id} to release")
        held.references -= 1
        held.last_used_s = now_s

    def finish_load(self, slot: int, now_s: float) -> None:
        held = self._in_state(slot, SlotState.LOADING)
        held.state = SlotState.READY
        held.last_used_s = held.ready_since_s = now_s
        self.turnover.loaded(now_s)

    def fail_load(self, slot: int) -> None:
        """The slot becomes empty, and every reference on it is void: its holders must not release them."""
        held = self._in_state(slot, SlotState.LOADING)
        self._empty(held)

    def vacate(self, key: AdapterKey) -> int | InUse | None:
        """Begin to clear the slot of an idle adapter and return it; None if it has no slot.

        From here on the adapter is not resident; `finish_clear` makes the slot free again.
        """
        if key in self.awaited:
            return InUse(reason="answers that are paused go on with it")
        if (index := self._slot_of.get(key)) is None:
            return None
        held = self._slots[index]
        if held.references or held.state is not SlotState.READY:
            return InUse(reason=f"{held.references} requests use it in slot {index} ({held.state})")
        del self._slot_of[key]
        held.key, held.state, held.closing = None, SlotState.CLEARING, False
        return index

    def retain(self, slot: int) -> None:
        """One more reference for whoever has one. Pair with `release`."""
        held = self._in_state(slot, SlotState.READY)
        held.references += 1

    def condemn(self, slot: int) -> None:
        """Begin to clear a slot whose content is wrong: every reference on it is void, as after a failed load."""
        held = self._in_state(slot, SlotState.READY)
        if held.key is not None:
            del self._slot_of[held.key]
        held.key, held.state, held.references, held.closing = None, SlotState.CLEARING, 0, False

    def finish_clear(self, slot: int) -> None:
        self._empty(self._in_state(slot, SlotState.CLEARING))

    def can_load(self, slot: int, key: AdapterKey) -> bool:
        chosen = self._slots[slot]
        return key not in self._slot_of and (chosen.idle or chosen.state is SlotState.EMPTY)

    def load_into(self, slot: int, key: AdapterKey, now_s: float) -> MustLoad:
        """Reserve this empty or idle slot for an adapter that has none."""
        chosen = self._slots[slot]
        if not self.can_load(slot, key):
            raise ValueError(f"{key.adapter_id} cannot be given slot {slot}, which is {chosen.state}")
        return self._reserve(chosen, key, now_s)

    def close_only(self, slot: int | None) -> None:
        """Let no new request onto this slot, so that it becomes idle whatever the traffic on it, and onto every
        other one again."""
        for each in self._slots:
            each.closing = each.index == slot

    @property
    def closed(self) -> int | None:
        return next((slot.index for slot in self._slots if slot.closing), None)

    def places(self) -> tuple[Place, ...]:
        return tuple(slot.place() for slot in self._slots)

    def has_slot(self, key: AdapterKey) -> bool:
        """It is in a slot, or being loaded into one."""
        return key in self._slot_of

    def is_resident(self, key: AdapterKey) -> bool:
        index = self._slot_of.get(key)
        return index is not None and self._slots[index].state is SlotState.READY

    def in_use(self, key: AdapterKey) -> bool:
        """Has references, a load in flight, or answers that are paused."""
        index = self._slot_of.get(key)
        return key in self.awaited or (index is not None and not self._slots[index].idle)

    @property
    def all_in_use(self) -> frozenset[AdapterKey]:
        """Every adapter of which the same is true."""
        return frozenset(self.awaited).union(slot.key for slot in self._slots if slot.key and not slot.idle)

    @property
    def resident(self) -> tuple[AdapterKey, ...]:
        return tuple(slot.key for slot in self._slots if slot.state is SlotState.READY and slot.key)

    @property
    def busy(self) -> int:
        return sum(slot.state is not SlotState.EMPTY and not slot.idle for slot in self._slots)

    @property
    def empty(self) -> int:
        return sum(slot.state is SlotState.EMPTY for slot in self._slots)

    @property
    def references(self) -> int:
        return sum(slot.references for slot in self._slots)

    def broken_invariants(self) -> Sequence[str]:
        """What should be true and is not, re-derived from the slots alone."""
        derived = {slot.key: slot.index for slot in self._slots if slot.key}
        broken = [] if derived == self._slot_of else [f"the index says {self._slot_of}, the slots say {derived}"]
        for slot in self._slots:
            keyed = slot.state in (SlotState.LOADING, SlotState.READY)
            if keyed != (slot.key is not None):
                broken.append(f"slot {slot.index} is {slot.state} with key {slot.key}")
            if slot.references < 0 or (slot.references and not keyed):
                broken.append(f"slot {slot.index} is {slot.state} with {slot.references} references")
        return broken

    def _join(self, slot: Slot, now_s: float) -> Resident | Loading:
        slot.references += 1
        slot.last_used_s = now_s
        if slot.state is SlotState.LOADING:
            return Loading(slot=slot.index, reason="its load is already under way")
        return Resident(slot=slot.index, reason="resident")

    def _reserve(self, slot: Slot, key: AdapterKey, now_s: float) -> MustLoad:
        evicted = slot.key
        if evicted is not None:
            del self._slot_of[evicted]
            self.turnover.evicted(now_s)
        slot.key, slot.state, slot.references, slot.last_used_s = key, SlotState.LOADING, 1, now_s
        slot.closing = False
        self._slot_of[key] = slot.index
        why = "empty slot" if evicted is None else f"evicts {evicted.adapter_id}, idle the longest"
        return MustLoad(slot=slot.index, evict=evicted, reason=why)

    def _free(self) -> Slot | None:
        return next((slot for slot in self._slots if slot.state is SlotState.EMPTY), None)

    def _least_recently_used(self) -> Slot | None:
        away = sum(key not in self._slot_of for key in self.awaited)
        kept = self.awaited if away >= self.count else ()
        idle = [slot for slot in self._slots if slot.idle and slot.key not in kept]
        return min(idle, key=lambda slot: (slot.key in self.awaited, slot.last_used_s, slot.index), default=None)

    def _in_state(self, slot: int, state: SlotState) -> Slot:
        held = self._slots[slot]
        if held.state is not state:
            raise ValueError(f"slot {slot} is {held.state}, not {state}")
        return held

    def _empty(self, slot: Slot) -> None:
        if slot.key is not None:
            del self._slot_of[slot.key]
        slot.key, slot.state, slot.references, slot.closing = None, SlotState.EMPTY, 0, False
