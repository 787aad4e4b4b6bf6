"""Bringing a replica, in the background, to what it is assigned: the worker's own plan, in virtual time.

`converge` is asked when something that it depends on has changed and it can have an answer: not while all that its
last plan wanted is there, nothing has to leave, and no slot is empty that is meant for somebody. Nor is it asked while
all that is assigned has room in RAM and on disk: what is missing then is seen without weighing anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from loadtest.twin.agenda import Agenda
from loadtest.twin.registry import Registry
from loadtest.twin.roomy import room_for_all
from loadtest.twin.slots import Slots
from loadtest.twin.tiers import Tiers
from services.replica_worker.core.assignment import Assignment, fold
from services.replica_worker.core.converge import Action, Held, Known, Limits, Plan, Step, converge, startable
from shared.messages.desired import AssignedAdapter, AssignmentShard
from shared.messages.identity import AdapterKey

PATIENCE_S = 1.0
_LOOK_S = 0.05


class Convergence:
    """`awaited` are the adapters that requests wait for; while there are some, it holds back for a while."""

    def __init__(
        self, agenda: Agenda, registry: Registry, tiers: Tiers, slots: Slots, awaited: Callable[[], set[AdapterKey]]
    ) -> None:
        self.assignment = Assignment()
        self.fast = True
        self.plans = 0
        self._agenda = agenda
        self._registry = registry
        self._tiers = tiers
        self._slots = slots
        self._awaited = awaited
        self._limits = Limits(ram_budget_bytes=tiers.ram.budget_bytes, disk_budget_bytes=tiers.disk.budget_bytes)
        self._wanted: Mapping[AdapterKey, AssignedAdapter] = {}
        self._for_slots: dict[AdapterKey, None] = {}
        """In the order in which they are wanted."""
        self._whole: Plan | None = None
        """Of the present assignment, if there is room for all of it."""
        self._known = -1
        self._lacking: set[AdapterKey] = set()
        """Of what the last plan wanted on disk or in RAM."""
        self._plan: Plan | None = None
        self._under_way: dict[AdapterKey, Step] = {}
        self._due = False
        self.alive = True

    def on_shard(self, shard: AssignmentShard) -> None:
        self.assignment = fold(self.assignment, shard)
        self._wanted = self.assignment.wanted()
        self._for_slots = dict.fromkeys(key for key, each in self._wanted.items() if each.tier == "gpu")
        self._plan = self._whole = None
        self.stir()

    def adopt(self, held: Mapping[AdapterKey, str] | None = None) -> None:
        """Have these by their tiers, or all that is assigned, as a replica that was here before does."""
        assigned = {key: each.tier for key, each in self._wanted.items()}
        for key, tier in (assigned if held is None else held).items():
            record = self._registry.records[key]
            self._tiers.adopt(record, tier)
            if tier == "gpu" and self._tiers.ram.holds(key):
                self._slots.adopt(record)

    def changed(self, key: AdapterKey) -> None:
        """It came to a tier, or left one."""
        if self._plan is not None:
            lacks = (key in self._plan.wanted_ram and not self._tiers.ram.holds(key)) or (
                key.digest in self._plan.wanted_disk and not self._tiers.disk.holds(key.digest)
            )
            (self._lacking.add if lacks else self._lacking.discard)(key)
        self.stir()

    def stir(self) -> None:
        """Look again, at once or when requests have what they need."""
        if not self._due and self.alive and not (self.fast and self.is_quiet()):
            self._due = True
            self._agenda.soon(self._look, self._agenda.now_s + PATIENCE_S)

    def is_quiet(self) -> bool:
        """Another plan would have no action that is not under way."""
        if self._plan is None or self._known != self._registry.changes:
            return False
        if self._lacking or self._registry.leaving:
            return False
        return not self._has_empty_slot()

    def plan(self, held: Held) -> Plan:
        records = self._registry.records
        leaving = frozenset(key for key in self._registry.leaving if self._holds(key))
        sizes = {key: records[key].size_bytes for key in (*self._wanted, *leaving) if key in records}
        known = Known(size_bytes=sizes, ram_bytes={}, leaving=leaving, blocked=())
        return converge(self._wanted, held, known, self._limits)

    def held(self) -> Held:
        tiers, table = self._tiers, self._slots.table
        return Held(
            gpu=frozenset(table.resident),
            ram=frozenset(tiers.ram.held),
            disk=frozenset(tiers.disk.held),
            in_use=table.all_in_use.union(tiers.all_in_use, self._awaited(), self._under_way),
            empty_slots=table.empty,
        )

    def _holds(self, key: AdapterKey) -> bool:
        tiers = self._tiers
        return self._slots.table.is_resident(key) or tiers.ram.holds(key) or tiers.files.get(key.digest) == key

    def _look(self, until_s: float) -> None:
        if self._awaited() and self._agenda.now_s < until_s:
            self._agenda.at(min(until_s, self._agenda.now_s + _LOOK_S), self._look, until_s)
            return
        self._due = False
        if self.alive:
            self._act()

    def _act(self) -> None:
        plan, lacking = (self.glance() if self.fast else None) or self._asked()
        self._plan, self._lacking, self._known = plan, lacking, self._registry.changes
        self._tiers.ram.preferred, self._tiers.disk.preferred = plan.wanted_ram, plan.wanted_disk
        for drop in plan.actions:
            if drop.step is Step.DROP and self._slots.vacate(drop.key) and self._tiers.drop(drop.key):
                self.stir()
                return
        for action in startable(plan, self._under_way):
            self._under_way[action.key] = action.step
            self._begin(action)

    def _asked(self) -> tuple[Plan, set[AdapterKey]]:
        self.plans += 1
        plan = self.plan(self.held())
        return plan, self._lacks(plan)

    def glance(self) -> tuple[Plan, set[AdapterKey]] | None:
        """What `converge` says, and what is lacking, where all that is assigned has room and nothing has to leave."""
        whole = self._whole = self._whole or room_for_all(self._wanted, self._registry.records, self._limits)
        if whole is None or self._registry.leaving:
            return None
        lacking = self._lacks(whole)
        is_all = not (lacking or self._has_empty_slot())
        return whole if is_all else msgspec.structs.replace(whole, actions=tuple(self._raises(whole, lacking))), lacking

    def _raises(self, whole: Plan, lacking: set[AdapterKey]) -> Iterable[Action]:
        """Each one tier at a time, in the order in which adapters are wanted."""
        ram, disk, slots = self._tiers.ram, self._tiers.disk, self._slots.empty
        busy = self._awaited().union(self._under_way)
        for key in self._wanted if lacking else self._for_slots:
            is_there, takes_slot = key not in lacking or ram.holds(key), slots > 0 and key in self._for_slots
            if (is_there and not takes_slot) or key in busy or self._is_settled(key):
                continue
            if not is_there and not disk.holds(key.digest):
                yield Action(step=Step.FETCH, key=key, reason="assigned, and not on disk")
            if not is_there and key in whole.wanted_ram:
                yield Action(step=Step.READ, key=key, reason="assigned to RAM or higher, and not there")
            if takes_slot:
                slots -= 1
                yield Action(step=Step.LOAD, key=key, reason="assigned to gpu, and a slot is empty")

    def _is_settled(self, key: AdapterKey) -> bool:
        table = self._slots.table
        return table.is_resident(key) or table.in_use(key) or self._tiers.in_use(key)

    def _has_empty_slot(self) -> bool:
        """That is meant for somebody."""
        return self._slots.empty > 0 and any(not self._slots.table.has_slot(key) for key in self._for_slots)

    def _lacks(self, plan: Plan) -> set[AdapterKey]:
        """What it wants on disk or in RAM and is not there: kept up since, if it is the last plan's."""
        if self._plan is not None and self._plan.wanted_disk is plan.wanted_disk:
            return self._lacking
        ram, disk = self._tiers.ram, self._tiers.disk
        lacks = {key for key in plan.wanted_ram if not ram.holds(key)}
        return lacks.union(key for key in self._wanted if key.digest in plan.wanted_disk and not disk.holds(key.digest))

    def _begin(self, action: Action) -> None:
        record = self._registry.records[action.key]
        match action.step:
            case Step.FETCH:
                self._tiers.hold_on_disk(record, lambda why: self._over(action.key, more=not why))
            case Step.READ:
                self._tiers.hold_in_ram(record, lambda why: self._over(action.key, more=not why))
            case Step.LOAD:
                self._slots.load_quietly(record, lambda well: self._over(action.key, more=well))

    def _over(self, key: AdapterKey, *, more: bool) -> None:
        self._under_way.pop(key, None)
        if more:
            self.stir()
