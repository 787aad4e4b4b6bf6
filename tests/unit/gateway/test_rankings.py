"""Rankings that are remembered are those that anybody would find."""

from __future__ import annotations

import pytest

from services.gateway.core import rankings
from services.gateway.core.fleet import Fleet
from services.gateway.core.pool import Pool
from services.gateway.core.rankings import Rankings
from shared.hashing import rank
from tests.unit.gateway import samples
from tests.unit.gateway.samples import POOL, member

NAMES = [f"r{index}" for index in range(12)]
IDS = [f"acme-{index}" for index in range(30)]


def pool_of(*names: str, weight: float = 1.0) -> Pool:
    fleet = Fleet(fresh_s=3.0)
    fleet.put_membership(POOL, samples.membership(*(member(name, weight=weight) for name in names)))
    [pool] = fleet.pools([POOL], 0.0)
    return pool


def names(found: Rankings, adapter_id: str, count: int) -> list[str]:
    return [seat.replica_id for seat in found.first(adapter_id, count)]


@pytest.mark.parametrize("ahead", [0, 1_000])
def test_the_order_is_everybodys_however_it_was_found(ahead: int) -> None:
    found = pool_of(*NAMES).rankings
    for adapter_id in IDS:
        found.expect(adapter_id)
    assert found.rank_ahead(ahead) == min(ahead, len(IDS))
    for adapter_id in IDS:
        order = list(rank(adapter_id, dict.fromkeys(NAMES, 1.0)))
        for count in (1, 2, 11, 12, 13):
            assert names(found, adapter_id, count)[:count] == order[:count]
            assert [seat.replica_id for seat in found.after(adapter_id, count)] == order[count:]


def test_another_membership_is_ranked_anew_and_what_was_asked_for_is_expected() -> None:
    fleet = Fleet(fresh_s=3.0)
    fleet.expect(POOL, IDS[0])
    assert fleet.rank_ahead(10) == 0, "there is nobody to rank yet"
    fleet.put_membership(POOL, samples.membership(*(member(name) for name in NAMES)))
    fleet.pools([POOL], 0.0)[0].rankings.first(IDS[1], 2)
    fleet.put_membership(POOL, samples.membership(*(member(name) for name in NAMES[1:])))
    assert fleet.rank_ahead(10) == 2
    assert fleet.rank_ahead(10) == 0
    [pool] = fleet.pools([POOL], 0.0)
    assert names(pool.rankings, IDS[1], 11) == list(rank(IDS[1], dict.fromkeys(NAMES[1:], 1.0)))[:11]


def test_a_member_that_is_ready_or_drains_changes_no_ranking() -> None:
    fleet = Fleet(fresh_s=3.0)
    fleet.put_membership(POOL, samples.membership(*(member(name) for name in NAMES)))
    before = fleet.pools([POOL], 0.0)[0].rankings
    fleet.put_membership(POOL, samples.membership(*(member(name, draining=name == "r3") for name in NAMES)))
    assert fleet.pools([POOL], 0.0)[0].rankings is before
    fleet.put_membership(POOL, samples.membership(*(member(name, weight=2.0) for name in NAMES)))
    assert fleet.pools([POOL], 0.0)[0].rankings is not before


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rankings, "_MOST", 10)
    found = pool_of(*NAMES).rankings
    for adapter_id in IDS:
        found.first(adapter_id, 2)
        found.expect(f"{adapter_id}-next")
    assert len(found._first) == 10
    assert found.rank_ahead(100) == 10
