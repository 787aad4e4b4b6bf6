"""What becomes of each adapter in a move to another base model, as its aliases and its successors show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from services.registry.core.lifecycle import IllegalMove

UNDONE = ("planned", "requested", "trained", "cut_over", "failed", "held", "rolled_back")
ITEM_STATES = (*UNDONE, "done")
UNTRAINED = ("planned", "requested", "failed", "held")
"""States of an item that still costs GPU-hours, if an alias means it."""

_STEPS: Mapping[str, frozenset[str]] = {
    "planned": frozenset({"requested", "held", "trained", "failed", "cut_over", "done"}),
    "requested": frozenset({"planned", "trained", "failed", "cut_over", "done"}),
    "held": frozenset({"planned", "requested", "trained", "failed", "cut_over", "done"}),
    "failed": frozenset({"planned", "requested", "trained", "cut_over", "done"}),
    "trained": frozenset({"planned", "failed", "cut_over", "rolled_back", "done"}),
    "cut_over": frozenset({"planned", "trained", "failed", "rolled_back", "done"}),
    "rolled_back": frozenset({"planned", "trained", "failed", "cut_over", "done"}),
    "done": frozenset(),
}

_ENDED = ("failed", "rejected", "retired")


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One adapter of the old base. `aliases` mean it now (or by a split); `moved` meant it once and mean a version on
    the new base now. `updated_at_s` is when it came to its state, `requests_per_day` its traffic when it was found."""

    migration_id: str
    adapter_id: str
    tenant_id: str
    state: str
    reason: str
    updated_at_s: float
    aliases: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    successor_id: str | None = None
    requests_per_day: float = 0.0


class Successor(msgspec.Struct, frozen=True, kw_only=True):
    """A version on the new base that was announced as the successor of an item."""

    adapter_id: str
    status: str
    reason: str
    registered_at_s: float


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What the tables say of one item: who means it, who meant it, and what was trained in its place. `blocked` is
    why it cannot be trained again, None if it can; with `holding` nothing new is asked for."""

    naming: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    successors: tuple[Successor, ...] = ()
    blocked: str | None = None
    holding: bool = False


def step(item: Item, state: str, reason: str, now_s: float) -> Item:
    """The item in another state. Raises IllegalMove."""
    if state not in _STEPS[item.state]:
        raise IllegalMove(f"{item.adapter_id} is {item.state} in its migration and cannot become {state}")
    return msgspec.structs.replace(item, state=state, reason=reason, updated_at_s=now_s)


def settle(item: Item, seen: Seen, now_s: float) -> Item:
    """The item as what is seen makes it; the same value if nothing changed.

    Everything follows from the tables of adapters and aliases, so that a migration that was interrupted anywhere, or
    an alias that was moved by hand, is understood afterwards.
    """
    state, reason, successor_id = _aim(item, seen)
    now = item if state == item.state else step(item, state, reason, now_s)
    return msgspec.structs.replace(now, aliases=seen.naming, moved=seen.moved, successor_id=successor_id)


def finish(item: Item, now_s: float) -> Item:
    """Its adapter is retired: nothing means it any more."""
    return item if item.state == "done" else step(item, "done", "retired with its base model", now_s)


def is_overdue(item: Item, now_s: float, retrain_deadline_s: float) -> bool:
    return item.state == "requested" and now_s - item.updated_at_s > retrain_deadline_s


_Aim = tuple[str, str, str | None]


def _aim(item: Item, seen: Seen) -> _Aim:
    """State, reason and successor that follow from what is seen."""
    best = _newest(seen.successors, ("active",))
    if item.state == "done":
        return _as_it_is(item)
    if not seen.naming:
        return _unnamed(item, seen, best)
    return _untrained(item, seen) if best is None else _trained(item, seen, best)


def _unnamed(item: Item, seen: Seen, best: Successor | None) -> _Aim:
    if seen.moved:
        successor_id = item.successor_id or (best.adapter_id if best else None)
        return "cut_over", f"{', '.join(seen.moved)} left the old base", successor_id
    if item.state in ("planned", "cut_over"):
        return _as_it_is(item)
    return "planned", "no alias means it any more", item.successor_id


def _trained(item: Item, seen: Seen, best: Successor) -> _Aim:
    """A successor that is newer than the one that was rolled back from is a new chance."""
    if best.adapter_id == item.successor_id:
        back = sorted(set(seen.naming) & set(item.moved))
        if back and item.state in ("trained", "cut_over"):
            return "rolled_back", f"{', '.join(back)} means {item.adapter_id} again", item.successor_id
        if item.state == "rolled_back":
            return _as_it_is(item)
    return "trained", f"{best.adapter_id} passed its evaluation", best.adapter_id


def _untrained(item: Item, seen: Seen) -> _Aim:
    last = _newest(seen.successors)
    ended = last is not None and last.status in _ENDED
    if last is not None and ended and not _is_old_news(item, last):
        return "failed", f"its successor {last.adapter_id} is {last.status}: {last.reason}", last.adapter_id
    if item.state in ("requested", "failed"):
        return _as_it_is(item)
    if item.state not in ("planned", "held"):
        return "planned", "an alias means it, and no successor is active", item.successor_id
    if last is not None and not ended:
        return _as_it_is(item)  # a pipeline was quicker than the request
    if seen.blocked is not None:
        return "held", seen.blocked, item.successor_id
    if seen.holding:
        return _as_it_is(item)
    return "requested", "its pipeline is asked to train it again", item.successor_id


def _is_old_news(item: Item, last: Successor) -> bool:
    """A failure that was told of before: the item failed by it, or was asked for again since."""
    return item.state in ("requested", "failed") and last.adapter_id == item.successor_id


def _as_it_is(item: Item) -> _Aim:
    return item.state, item.reason, item.successor_id


def _newest(successors: Sequence[Successor], statuses: tuple[str, ...] = ()) -> Successor | None:
    fitting = [one for one in successors if not statuses or one.status in statuses]
    return max(fitting, key=lambda one: (one.registered_at_s, one.adapter_id), default=None)
