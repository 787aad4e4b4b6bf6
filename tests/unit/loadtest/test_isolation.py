from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from infra.adapters.marked import BASE, Judge
from loadtest.isolation import BY_PROOF, NO_PROOF, isolation_figures, planted_figures
from loadtest.isolation_client import Client
from loadtest.isolation_fleet import Counted, told_by
from loadtest.isolation_plan import Ask, Mix, Operation, steps
from loadtest.isolation_run import Run, Tally
from loadtest.isolation_stage import ANSWER_TOKENS, MOVING, RANK, REPLICA_IDS, STEADY, Outcome, deployment
from services.replica_worker.reporting.metering import Meters
from shared.runtime.metrics import Metrics

MIX = Mix(requests=4000, base_name="tiny", answer_tokens=12)


def asked(mix: Mix = MIX) -> list[Ask]:
    return [step for step in steps(mix, deployment(), REPLICA_IDS) if isinstance(step, Ask)]


def done(mix: Mix = MIX) -> list[Operation]:
    return [step for step in steps(mix, deployment(), REPLICA_IDS) if isinstance(step, Operation)]


def test_the_same_seed_gives_the_same_steps_and_another_one_others() -> None:
    assert asked() == asked()
    assert asked() != asked(replace(MIX, seed=1))


def test_every_alias_is_asked_by_its_own_tenant_and_the_base_by_all() -> None:
    requests = asked()
    canaries = [ask for ask in requests if ask.meant != (BASE,)]
    assert len(requests) == MIX.requests
    assert all(ask.alias.startswith(f"{ask.tenant}/") for ask in canaries)
    assert len({ask.alias for ask in canaries}) == STEADY + MOVING
    assert len({ask.tenant for ask in requests if ask.meant == (BASE,)}) == len({ask.tenant for ask in canaries})


def test_the_shares_are_those_of_the_mix() -> None:
    requests = asked()
    share = {
        "base": sum(ask.meant == (BASE,) for ask in requests) / len(requests),
        "streamed": sum(ask.stream for ask in requests) / len(requests),
        "leaving": sum(ask.leave_after is not None for ask in requests) / len(requests),
    }
    assert share == pytest.approx({"base": 0.1, "streamed": 0.5, "leaving": 0.06}, abs=0.02)


def test_the_base_has_room_for_any_marker_that_is_not_its_own_to_say() -> None:
    """Cut before its end, a marker that the base says is found by nobody."""
    assert {ask.max_tokens for ask in asked()} == {MIX.answer_tokens}
    assert ANSWER_TOKENS >= RANK  # of which a marker has at most one token less


def test_only_a_stream_is_left_in_the_middle() -> None:
    leaving = [ask for ask in asked() if ask.leave_after is not None]
    assert {ask.leave_after for ask in leaving if ask.stream} == {0, 1, 2}
    assert {ask.leave_after for ask in leaving if not ask.stream} == {0}


def test_operators_move_aliases_only_to_their_own_versions() -> None:
    """And each time to another one than it stands for."""
    adapters_of = {each.alias: each.adapter_ids for each in deployment()}
    standing = {alias: adapter_ids[0] for alias, adapter_ids in adapters_of.items()}
    operations = done()
    assert len(operations) == MIX.requests // MIX.requests_per_operation
    assert {operation.kind for operation in operations} == {"move", "load", "unload"}
    for operation in operations:
        if operation.kind == "move":
            assert operation.target in adapters_of[operation.subject]
            assert operation.target != standing[operation.subject]
            standing[operation.subject] = operation.target
        else:
            assert operation.target in REPLICA_IDS


async def test_only_what_the_fleet_did_counts_as_done() -> None:
    operations = [Operation(kind="move", subject=f"t/{at}:prod", target="a") for at in range(5)]
    tried: list[Operation] = []

    async def refuse_every_second(operation: Operation) -> bool:
        tried.append(operation)
        return len(tried) % 2 == 0

    tally = await Run(iter(operations), Judge({}), refuse_every_second).with_clients([Client("nowhere", 1, {})])
    assert tried == operations
    assert tally.operations == {"move": 2}


def metrics_of(steps_of: dict[int, int], loads: int, refused: int) -> str:
    """As a replica shows them that has counted so much."""
    metrics = Metrics("replica_worker")
    meters = Meters(metrics)
    for distinct, count in steps_of.items():
        for _ in range(count):
            meters.distinct_adapters.observe(distinct)
    meters._loads.inc(loads)
    meters._evictions.inc(loads - 1)
    meters.proofs.labels("refused").inc(refused)
    return metrics.exposition().decode()


def test_what_replicas_count_is_added_up_and_refusals_are_told_apart() -> None:
    found = told_by([metrics_of({0: 4, 1: 3, 8: 2}, 5, 0), metrics_of({1: 1, 4: 6}, 7, 9)])
    assert (found.loads, found.evictions, found.unproven) == (12, 10, [0, 9])
    assert {distinct: steps for distinct, steps in found.steps_of.items() if steps} == {0: 4, 1: 4, 4: 6, 8: 2}
    assert (found.most_distinct(), found.steps_with(4)) == (8, 8)


def outcome(tally: Tally, *unproven: int) -> Outcome:
    counted = Counted(loads=500, evictions=500, unproven=unproven, steps_of={0: 5, 1: 10, 4: 30, 8: 20, 12: 0})
    return Outcome(tally=tally, counted=counted)


def good() -> Tally:
    return Tally(completed=950, of_base=90, aborted=50, operations=Counter(move=10, load=10, unload=10), wall_s=10.0)


def test_a_run_in_which_much_happened_and_nothing_was_wrong_meets_every_target() -> None:
    figures = isolation_figures(outcome(good()), 1000)
    assert [name for name, figure in figures.items() if figure.met is False] == []
    assert figures["distinct_per_batch"].value == pytest.approx((10 + 120 + 160) / 60, abs=0.01)
    assert figures["distinct_per_batch.max"].value == 8
    assert figures["steps_with_4_adapters"].value == 50


@pytest.mark.parametrize(
    ("figure", "change"),
    [
        ("wrong_marker", {"wrong": Counter(wrong_marker=1)}),
        ("missing_marker", {"wrong": Counter(missing_marker=1)}),
        ("completed", {"completed": 800}),
        ("aborted", {"aborted": 3}),
        ("refused", {"refused": Counter({"503": 60})}),
        ("alias_moves", {"operations": Counter(load=30)}),
    ],
)
def test_each_figure_can_fall_short(figure: str, change: dict[str, object]) -> None:
    figures = isolation_figures(outcome(replace(good(), **change)), 1000)
    assert [name for name, each in figures.items() if each.met is False] == [figure]


@pytest.mark.parametrize(
    ("wrong", "unproven", "by_proof"), [(0, (3, 9), 2), (0, (0, 9), 1), (0, (0, 0), 0), (1, (3, 9), 0)]
)
def test_the_proof_sees_a_fault_on_its_replica_and_is_forgiven_no_wrong_answer(
    wrong: int, unproven: tuple[int, int], by_proof: int
) -> None:
    tally = replace(good(), wrong=Counter(wrong_marker=wrong) if wrong else Counter())
    figures = planted_figures({BY_PROOF: outcome(tally, *unproven)})
    assert figures["planted_faults_caught.by_proof"].value == by_proof


def test_a_fault_that_nobody_saw_is_not_caught() -> None:
    seen, unseen = outcome(replace(good(), wrong=Counter(wrong_marker=3)), 0, 0), outcome(good(), 0, 0)
    figures = planted_figures({("x", NO_PROOF): seen, ("y", NO_PROOF): unseen, BY_PROOF: unseen})
    assert {name: figure.value for name, figure in figures.items()} == {
        "planted_faults_caught": 1,
        "planted_faults_caught.by_proof": 0,
    }
    assert [figure.met for figure in figures.values()] == [False, False]
