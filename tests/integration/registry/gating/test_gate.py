"""No activation without a pass: what replicas, pipelines and people have to say to a version."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec
import pytest

from services.registry.core.gating.evaluation import Verdict
from services.registry.core.gating.evaluation_sets import Policy
from services.registry.core.gating.gate import CaseReport, Scores
from services.registry.gating import gate
from shared.contracts import catalog
from shared.messages.completions import CasePrompt
from shared.messages.pools import pool_id
from tests.support.adapter_files import BASE
from tests.support.evaluations import YES, Tongues, failed, give_set, jsonl, reports
from tests.support.registry_place import POOL, Place
from tests.support.registry_watch import alias_is, heard
from tests.support.registry_world import FakePlacement, FakeReplica, World, summary

ALIAS = "acme/support:prod"


# -- sets ----------------------------------------------------------------------------------------------


async def test_a_set_is_kept_as_it_is_and_the_latest_holds(here: World) -> None:
    first = await give_set(here, jsonl(*YES), minimum_score=0.9)
    assert (first.status_code, first.json()["cases"], first.json()["policy"]["minimum_score"]) == (201, 3, 0.9)
    assert (await give_set(here, jsonl({"contains": "x"}))).status_code == 201
    again = await give_set(here, jsonl(*YES), minimum_score=0.9)
    assert (again.status_code, again.json()["set_id"]) == (200, first.json()["set_id"])
    listed = (await here.admin.get("/internal/evaluation-sets", params={"tenant_id": "acme"})).json()
    assert [one["cases"] for one in listed["evaluation_sets"]] == [3, 1]


async def test_a_set_with_faults_is_refused_with_all_of_them(here: World) -> None:
    answer = await give_set(here, jsonl({"exact": 1}, {}), epsilon=2)
    found = [one["field"] for one in answer.json()["error"]["defects"]]
    assert (answer.status_code, found) == (422, ["epsilon", "line 1", "line 2"])
    assert (await give_set(here, jsonl(*YES), tenant_id="nobody")).status_code == 404
    assert (await give_set(here, b"x" * ((1 << 20) + 1))).status_code == 413
    await here.activated("v1")
    await here.admin.post("/internal/tenants", json={"tenant_id": "globex"})
    assert (await give_set(here, jsonl(*YES), tenant_id="globex", adapter_id="v1")).status_code == 404


# -- the set's verdict ---------------------------------------------------------------------------------


async def test_a_good_version_passes_and_its_report_shows_all_three_side_by_side(
    here: World, replica: FakeReplica, place: Place
) -> None:
    await here.activated("v1", alias=ALIAS)
    await give_set(here, jsonl(*YES))
    [evaluated] = await heard(place.broker.connect("pipeline"), catalog.ADAPTER_EVALUATED)
    await here.activated("v2", seed=2, alias=ALIAS)
    found = await reports(here, "v2")
    report = found["reports"][0]
    assert (found["status"], report["source"], report["passed"]) == ("active", "set", True)
    assert report["scores"] == {"candidate": 1.0, "base": 0.0, "predecessor": 1.0}
    assert (report["predecessor_id"], report["replica_id"], len(report["cases"])) == ("v1", "replica-a", 3)
    case = report["cases"][0]
    assert (case["prompt"], case["expected"]) == ("Question 0", "exact: yes")
    assert [case[who]["text"] for who in ("candidate", "base", "predecessor")] == ["yes", "no", "yes"]
    assert [one["source"] for one in found["reports"]] == ["set", "built-in"]
    told = (await evaluated.first(2))[-1]
    assert (told.adapter_id, told.score, told.source) == ("v2", 1.0, "fleet")
    assert await alias_is(place.broker.connect("gateway"), ALIAS, "v2") is not None


async def test_c08_a_version_that_answers_as_the_base_does_is_refused(here: World, replica: FakeReplica) -> None:
    replica.says = Tongues(base="yes")
    await give_set(here, jsonl(*YES))
    assert "no effect" in await failed(here, "v1")


async def test_a_sabotaged_judge_would_let_it_pass(
    here: World, replica: FakeReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the refusal above comes from the judge of the cases, and from nothing else."""

    def blind(policy: Policy, cases: Sequence[CaseReport], scores: Scores) -> Verdict:
        return Verdict(state="active", reason="planted")

    replica.says = Tongues(base="yes")
    await give_set(here, jsonl(*YES))
    monkeypatch.setattr(gate, "judge_cases", blind)
    await here.activated("v1")


async def test_a_version_without_effect_by_the_replicas_measure_is_not_even_asked(
    here: World, replica: FakeReplica
) -> None:
    await give_set(here, jsonl(*YES))
    replica.passed, replica.reason = False, "no effect"
    assert "no effect" in await failed(here, "v1")
    assert replica.questions == []


async def test_a_version_below_the_minimum_is_refused(here: World, replica: FakeReplica) -> None:
    replica.says = Tongues(v1="perhaps")
    await give_set(here, jsonl(*YES), minimum_score=0.4)
    assert "0.400 are needed" in await failed(here, "v1")


async def test_a_version_worse_than_its_predecessor_is_refused(here: World, replica: FakeReplica) -> None:
    replica.says = Tongues(v2="yes and no")
    await here.activated("v1")
    await give_set(here, jsonl({"contains": "yes"}, {"exact": "yes"}), minimum_score=0.1)
    assert "predecessor 1.000" in await failed(here, "v2", seed=2, predecessor_id="v1")


async def test_a_predecessor_that_is_gone_is_said_to_be_so(here: World) -> None:
    await here.activated("v1")
    await give_set(here, jsonl(*YES))
    assert (await here.admin.post("/internal/adapters/v1/retire")).status_code == 200
    await here.activated("v2", seed=2, predecessor_id="v1")
    assert "v1, which is retired" in (await reports(here, "v2"))["reports"][0]["reason"]


async def test_a_set_of_one_adapter_comes_before_its_tenants(here: World, replica: FakeReplica) -> None:
    await give_set(here, jsonl({"exact": "oui"}), adapter_id="v1")
    await give_set(here, jsonl(*YES))
    assert "0.500 are needed" in await failed(here, "v1")
    await here.activated("v2", seed=2)


async def test_a_predecessor_on_another_base_answers_on_a_replica_of_its_own_pool(place: Place) -> None:
    other = msgspec.structs.replace(
        BASE, base_model_hash=hashlib.sha256(b"the old base").hexdigest(), name="old-base"
    )  # fmt: skip
    pools = {"replica-new": POOL, "replica-old": pool_id(other.base_model_hash, 8)}
    placement = FakePlacement(POOL)
    placement.summaries = tuple(summary(name, pool) for name, pool in pools.items())
    await placement.serve(place.broker.connect("placement"))
    new, old = FakeReplica("replica-new"), FakeReplica("replica-old")
    for replica in (new, old):
        replica.says = Tongues()
        await replica.serve(place.broker.connect("replica_worker"))
    async with place.registry() as here:
        await here.prepare()
        body = msgspec.to_builtins(other)
        assert (await here.admin.put(f"/internal/base-models/{other.base_model_hash}", json=body)).status_code == 201
        await here.activated("v1", base_model_hash=other.base_model_hash)
        await give_set(here, jsonl(*YES))
        await here.activated("v2", seed=2, predecessor_id="v1")
    adapters = {replica.replica_id: {question.record and question.record.adapter_id for question in replica.questions}
                for replica in (new, old)}  # fmt: skip
    assert adapters == {"replica-new": {"v2", None}, "replica-old": {"v1"}}
    assert {question.base_model_hash for question in old.questions} == {other.base_model_hash}


# -- trouble -------------------------------------------------------------------------------------------


async def test_what_was_answered_before_a_replica_died_is_not_asked_again(place: Place) -> None:
    dying, other = await place.replicas("replica-a", "replica-b")
    other.says = Tongues()

    def die(adapter_id: str | None, prompt: CasePrompt) -> str:
        if adapter_id is not None and prompt.case > 8:
            raise RuntimeError("planted")
        return other.says(adapter_id, prompt)

    dying.says = die
    async with place.registry() as here:
        await here.prepare()
        await give_set(here, jsonl(*YES * 8))
        await here.activated("v1")
        assert len((await reports(here, "v1"))["reports"][0]["cases"]) == 24
    asked = [prompt.case for question in other.questions if question.record for prompt in question.prompts]
    assert asked == list(range(9, 25))


async def test_a_question_that_fails_is_asked_twice_and_then_counts_as_wrong(here: World, replica: FakeReplica) -> None:
    failing = {"v1": 1, "v2": 9}

    def says(adapter_id: str | None, prompt: CasePrompt) -> str:
        if adapter_id in failing and prompt.case == 1 and failing[adapter_id] > 0:
            failing[adapter_id] -= 1
            return "error: too long"
        return "no" if adapter_id is None else "yes"

    replica.says = says
    await give_set(here, jsonl(*YES), minimum_score=1.0)
    await here.activated("v1")
    assert "0.667" in await failed(here, "v2", seed=2)
    assert failing["v2"] == 7
    assert (await reports(here, "v2"))["reports"][0]["cases"][0]["candidate"]["error"] == "too long"


async def test_a_set_that_nobody_answers_fails_at_the_deadline(place: Place) -> None:
    [replica] = await place.replicas("replica-a")
    replica.says = lambda adapter_id, prompt: str(1 / 0)
    async with place.registry(evaluation_deadline_s=0.3) as here:
        await here.prepare()
        await give_set(here, jsonl(*YES))
        reason = await failed(here, "v1")
        assert "before its deadline: replica replica-a was asked: division by zero" in reason
