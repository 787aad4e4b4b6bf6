"""What is kept of rankings while replicas and adapters come and go is what ranking anew would find."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared.hashing import rank
from shared.nearest import Nearest

DEPTH = 3
WEIGHTS = st.dictionaries(st.sampled_from([f"r{at}" for at in range(30)]), st.sampled_from([0.0, 0.5, 1.0, 1.4]))
ADAPTERS = st.lists(st.sampled_from([f"a{at}" for at in range(40)]), unique=True)


@given(st.lists(st.tuples(WEIGHTS, ADAPTERS), min_size=1, max_size=6))
def test_every_step_is_as_good_as_a_new_beginning(steps: list[tuple[dict[str, float], list[str]]]) -> None:
    nearest, asked = Nearest(DEPTH, {}), set[str]()
    for weights, adapter_ids in steps:
        before = dict(zip(sorted(asked), nearest.of(sorted(asked)), strict=True))
        nearest, concerned = nearest.on(weights)
        nearest = nearest.adding(adapter_ids)
        asked |= set(adapter_ids)
        found = dict(zip(sorted(asked), nearest.of(sorted(asked)), strict=True))
        assert found == {one: rank(one, weights)[:DEPTH] for one in asked}
        changed = {one for one, ranking in before.items() if found[one] != ranking}
        assert changed <= set(concerned)


def test_one_replica_that_joins_or_leaves_concerns_its_own_adapters_alone() -> None:
    fleet = {f"r{at:02}": 1.0 for at in range(50)}
    adapters = [f"a{at}" for at in range(2_000)]
    full = Nearest(DEPTH, fleet).adding(adapters)
    less, left = full.on({name: weight for name, weight in fleet.items() if name != "r07"})
    assert set(left) == {one for one in adapters if "r07" in full.of([one])[0]}
    again, joined = less.on(fleet)
    assert (set(joined), again.of(adapters)) == (set(left), full.of(adapters))
    assert full.on(fleet) == (full, ())
