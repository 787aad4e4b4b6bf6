"""Owners of an adapter: the first k of the ranking that every reader can compute for itself, reached without haste.

Who owns follows from the ranking at once, for gateways as for placement. Who holds follows in steps: a replica is given
at most so many new adapters at a time, the hottest first, and until its turn has come an earlier owner keeps the
adapter in its stead. What nobody holds any more, because its owner was lost or because it is new, waits for no turn,
and neither does what a replica has anyway, because it was to drain and is not any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from shared.messages.desired import AdapterRecord, Member, OwnerCount

Owners = tuple[str, ...]


class ChurnPolicy(msgspec.Struct, frozen=True, kw_only=True):
    moves: int = 64
    """New adapters a replica may be given in each `every_s`, besides those that it gets for a lost owner."""
    every_s: float = 1.0


class Moves(msgspec.Struct, frozen=True):
    """What has been given since `since_s`, by replica."""

    since_s: float = 0.0
    given: Mapping[str, int] = {}


class Move(msgspec.Struct, frozen=True):
    """One adapter from those who `had` it, as far as they may still own, to those who `should`. Of these, `has` are
    those who hold it by their own word: they need not load it, and wait for no turn."""

    adapter_id: str
    heat: int
    had: Owners
    should: Owners
    has: Owners = ()


def owners_of(
    record: AdapterRecord, ranking: Sequence[str], members: Mapping[str, Member], count: OwnerCount
) -> Owners:
    """The first k ranked members that can apply an adapter of this rank; all of them if there are fewer."""
    wanted = count.exceptions.get(record.adapter_id, count.owners)
    return first_fitting(ranking, members, record.rank, wanted)


def first_fitting(ranking: Iterable[str], members: Mapping[str, Member], rank: int, count: int) -> Owners:
    found = []
    for name in ranking:
        if members[name].rank_limit >= rank:
            found.append(name)
            if len(found) == count:
                break
    return tuple(found)


def settled(moves: Iterable[Move], before: Moves, now_s: float, policy: ChurnPolicy) -> tuple[dict[str, Owners], Moves]:
    """Who holds each adapter now, first owner first; and what has been given, for the next time."""
    fresh = before if now_s - before.since_s < policy.every_s else Moves(now_s)
    given = dict(fresh.given)
    holders = {}
    for move in sorted(moves, key=lambda move: (-move.heat, move.adapter_id)):
        holders[move.adapter_id] = _stepped(move, _giver(given, policy.moves))
    return holders, Moves(fresh.since_s, given)


def _stepped(move: Move, may_give: Callable[[str], bool]) -> Owners:
    new = [name for name in move.should if name not in move.had and name not in move.has]
    late = {name for name in new if not may_give(name)}
    leaving = [name for name in move.had if name not in move.should]
    return (*(name for name in move.should if name not in late), *leaving[: len(late)])


def _giver(given: dict[str, int], most: int) -> Callable[[str], bool]:
    def may_give(replica_id: str) -> bool:
        count = given.get(replica_id, 0)
        if count >= most:
            return False
        given[replica_id] = count + 1
        return True

    return may_give
