"""What to do next so that the replica holds what it is assigned.

Convergence runs in the background, a few actions at a time, and is planned anew after every action. It
never evicts an adapter from a slot: it uses empty ones. What is cached but not assigned stays until
its space is needed; what is leaving (retired, or wanted by nobody) and not assigned leaves every tier.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

import msgspec

from shared.messages.desired import AssignedAdapter
from shared.messages.identity import AdapterKey


class Step(StrEnum):
    DROP = "drop"
    FETCH = "fetch to disk"
    READ = "read to RAM"
    LOAD = "load to a slot"


AT_ONCE: Mapping[Step, int] = {Step.FETCH: 2, Step.READ: 1, Step.LOAD: 1}
"""At most half of what a replica does of each at once, so that loads of requests never wait for all of it."""


_NOT_ON_DISK, _NOT_IN_RAM = "assigned, and not on disk", "assigned to RAM or higher, and not there"
_SLOT_EMPTY = "assigned to gpu, and a slot is empty"


class Action(msgspec.Struct, frozen=True, kw_only=True):
    step: Step
    key: AdapterKey
    reason: str


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What the replica holds now. `in_use`: has references, pins, requests that wait for it, or is on its way
    somewhere."""

    gpu: Collection[AdapterKey]
    ram: Collection[AdapterKey]
    disk: Collection[str]
    """Digests."""
    in_use: Collection[AdapterKey]
    empty_slots: int


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    ram_budget_bytes: int
    disk_budget_bytes: int


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What the records say. An adapter without a size has no record yet and waits for one."""

    size_bytes: Mapping[AdapterKey, int]
    """Of the file."""
    ram_bytes: Mapping[AdapterKey, int]
    """What it took in RAM, of those that were there once; the others are taken for as large as their file."""
    leaving: Collection[AdapterKey]
    blocked: Collection[AdapterKey]
    """Failed a short while ago, or for good."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    actions: tuple[Action, ...]
    wanted_ram: frozenset[AdapterKey]
    wanted_disk: frozenset[str]
    """What fits the budgets, and is therefore evicted last."""
    left_out: int
    reason: str


def converge(wanted: Mapping[AdapterKey, AssignedAdapter], held: Held, known: Known, limits: Limits) -> Plan:
    """The actions that are still missing, in the order in which they should be done.

    Drops come first because they make room; then adapters in the order in which they are wanted, each raised
    one tier at a time. Adapters beyond a budget are left out rather than fetched and evicted in turn.
    """
    usable = {key: each for key, each in wanted.items() if key in known.size_bytes and key not in known.blocked}
    on_disk = _fitting(list(usable), known.size_bytes, limits.disk_budget_bytes)
    for_ram = [key for key in on_disk if usable[key].tier in ("gpu", "ram")]
    in_ram = _fitting(for_ram, {**known.size_bytes, **known.ram_bytes}, limits.ram_budget_bytes)
    actions = [*_drops(wanted, held, known), *_raises(usable, held, set(on_disk), set(in_ram))]
    left_out = len(wanted) - len(on_disk)
    return Plan(
        actions=tuple(actions),
        wanted_ram=frozenset(in_ram),
        wanted_disk=frozenset(key.digest for key in on_disk),
        left_out=left_out,
        reason=f"{len(actions)} actions for {len(wanted)} assigned adapters, {left_out} left out",
    )


def startable(plan: Plan, under_way: Mapping[AdapterKey, Step]) -> list[Action]:
    """Raises that may begin beside those under way: of each adapter the first, and of each step as many as may run."""
    left = {step: count - sum(step is each for each in under_way.values()) for step, count in AT_ONCE.items()}
    busy = set(under_way)
    begin: list[Action] = []
    for action in plan.actions:
        if action.step is Step.DROP or action.key in busy:
            continue
        busy.add(action.key)
        if left[action.step] > 0:
            left[action.step] -= 1
            begin.append(action)
        if not any(left.values()):
            break
    return begin


def _drops(wanted: Mapping[AdapterKey, AssignedAdapter], held: Held, known: Known) -> list[Action]:
    gone = [key for key in known.leaving if key not in wanted and key not in held.in_use]
    needed = {key.digest for key in known.size_bytes if key not in known.leaving}  # other adapters, the same bytes
    files = set(held.disk) - needed
    present = [key for key in gone if key in held.gpu or key in held.ram or key.digest in files]
    return [
        Action(step=Step.DROP, key=key, reason="retired or not wanted, not assigned, and no request needs it")
        for key in sorted(present)
    ]


def _raises(
    usable: Mapping[AdapterKey, AssignedAdapter], held: Held, on_disk: set[AdapterKey], in_ram: set[AdapterKey]
) -> list[Action]:
    actions: list[Action] = []
    slots = held.empty_slots
    for key, each in usable.items():
        if key in held.gpu or key in held.in_use:
            continue
        if key not in held.ram and key.digest not in held.disk and key in on_disk:
            actions.append(Action(step=Step.FETCH, key=key, reason=_NOT_ON_DISK))
        if key not in held.ram and key in in_ram:
            actions.append(Action(step=Step.READ, key=key, reason=_NOT_IN_RAM))
        if each.tier == "gpu" and slots > 0 and (key in held.ram or key in in_ram):
            slots -= 1
            actions.append(Action(step=Step.LOAD, key=key, reason=_SLOT_EMPTY))
    return actions


def _fitting(keys: list[AdapterKey], size_bytes: Mapping[AdapterKey, int], budget_bytes: int) -> list[AdapterKey]:
    fitting: list[AdapterKey] = []
    used_bytes = 0
    for key in keys:
        if used_bytes + size_bytes[key] <= budget_bytes:
            used_bytes += size_bytes[key]
            fitting.append(key)
    return fitting
