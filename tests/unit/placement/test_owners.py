"""Owners: the first k of a ranking, reached in steps that no replica chokes on."""

from __future__ import annotations

from services.placement.core.owners import ChurnPolicy, Move, Moves, owners_of, settled
from shared.messages.desired import Member, OwnerCount
from tests.simulation.speakers import POOL, adapter


def member(replica_id: str, *, rank_limit: int = 16) -> Member:
    return Member(
        replica_id=replica_id,
        incarnation="first",
        weight=1.0,
        slots=4,
        rank_limit=rank_limit,
        ram_budget_bytes=0,
        disk_budget_bytes=0,
        ready=True,
    )


def test_c70_a_replica_below_the_adapters_rank_is_passed_over() -> None:
    members = {"r1": member("r1", rank_limit=8), "r2": member("r2"), "r3": member("r3")}
    found = owners_of(adapter("a"), ("r1", "r2", "r3"), members, OwnerCount(pool_id=POOL))
    assert found == ("r2", "r3")


def test_an_exception_has_its_own_number_of_owners() -> None:
    members = {name: member(name) for name in ("r1", "r2", "r3")}
    count = OwnerCount(pool_id=POOL, owners=1, exceptions={"hot": 3})
    ranking = ("r1", "r2", "r3")
    assert owners_of(adapter("hot"), ranking, members, count) == ranking
    assert owners_of(adapter("cold"), ranking, members, count) == ("r1",)


def move(
    adapter_id: str, had: tuple[str, ...], should: tuple[str, ...], *, heat: int = 0, has: tuple[str, ...] = ()
) -> Move:
    return Move(adapter_id, heat, had, should, has)


def test_a_replica_is_given_so_many_at_a_time_the_hottest_first() -> None:
    moves = [move(f"a{number}", ("r1", "r2"), ("r1", "new"), heat=number) for number in range(5)]
    policy = ChurnPolicy(moves=2)
    holders, given = settled(moves, Moves(), 0.0, policy)
    assert [name for name, held in holders.items() if held == ("r1", "new")] == ["a4", "a3"]
    assert holders["a0"] == ("r1", "r2"), "until then an earlier owner keeps it"
    holders, given = settled(moves[:3], given, 0.9, policy)
    assert set(holders.values()) == {("r1", "r2")}
    holders, _ = settled(moves[:3], given, 1.0, policy)
    assert [name for name, held in holders.items() if held == ("r1", "new")] == ["a2", "a1"]


def test_each_replica_has_a_turn_of_its_own_and_what_it_holds_anyway_takes_none() -> None:
    moves = [
        move("a", ("r1", "r2"), ("new", "other")),
        move("b", ("r1", "r2"), ("new", "r1")),
        move("back", ("r1", "r2"), ("r1", "new"), has=("r1", "new")),
    ]
    holders, _ = settled(moves, Moves(), 0.0, ChurnPolicy(moves=1))
    assert holders == {"a": ("new", "other"), "b": ("r1", "r2"), "back": ("r1", "new")}


def test_one_more_owner_that_is_late_takes_nothing_from_the_others() -> None:
    holders, _ = settled([move("a", ("r1", "r2"), ("r1", "r2", "r3"))], Moves(), 0.0, ChurnPolicy(moves=0))
    assert holders == {"a": ("r1", "r2")}
