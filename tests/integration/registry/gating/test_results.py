"""What pipelines and people have to say to a version that is being evaluated."""

from __future__ import annotations

import msgspec

from shared.contracts import catalog
from shared.messages.results import PipelineResults
from tests.support.evaluations import YES, Signer, Tongues, failed, give_set, jsonl, reports
from tests.support.registry_place import Place
from tests.support.registry_watch import alias_is, eventually, heard, record_is
from tests.support.registry_world import FakeReplica, World

ALIAS = "acme/support:prod"


# -- pipelines -----------------------------------------------------------------------------------------


async def measured(here: World, adapter_id: str) -> None:
    async def known() -> bool:
        return bool((await reports(here, adapter_id))["reports"])

    await eventually(known)


async def test_a_pipelines_signed_results_activate_its_adapter_and_are_kept_as_such(
    here: World, replica: FakeReplica, place: Place
) -> None:
    signer, announced = Signer(), here.announce("v1", evaluated_by="pipeline", alias=ALIAS)
    assert (await signer.introduce(here)).status_code == 201
    await give_set(here, jsonl(*YES), minimum_score=0.8)
    assert (await here.post(announced)).status_code == 201
    await measured(here, "v1")
    assert (await here.status("v1"), replica.questions) == ("evaluating", [])
    answer = await signer.post(here, announced, 0.85, notes="nightly")
    assert (answer.status_code, answer.json()["status"]) == (200, "active")
    report = (await reports(here, "v1"))["reports"][0]
    assert (report["source"], report["signed_by"], report["scores"]["candidate"]) == ("pipeline", signer.key_id, 0.85)
    await alias_is(place.broker.connect("gateway"), ALIAS, "v1")
    assert (await signer.post(here, announced, 0.85)).status_code == 409


async def test_a_pipelines_results_stand_under_the_sets_policy(here: World) -> None:
    signer, announced = Signer(), here.announce("v1", evaluated_by="pipeline")
    await signer.introduce(here)
    await give_set(here, jsonl(*YES), minimum_score=0.8)
    await here.post(announced)
    await measured(here, "v1")
    answer = await signer.post(here, announced, 0.79)
    assert (answer.status_code, answer.json()["status"]) == (200, "failed")


async def test_results_that_are_not_signed_for_this_version_are_refused(here: World) -> None:
    signer, stranger, bystander = Signer(), Signer(), Signer()
    await signer.introduce(here)
    await here.admin.post("/internal/tenants", json={"tenant_id": "globex"})
    await bystander.introduce(here, tenant_id="globex")
    first, second = (here.announce(name, seed=at, evaluated_by="pipeline") for at, name in enumerate(("v1", "v2")))
    for announced in (first, second):
        await here.post(announced)
        await measured(here, announced.adapter_id)
    replayed = signer.posted(first, PipelineResults(score=1.0))
    altered = {**signer.posted(second, PipelineResults(score=0.1)), "results": {"score": 1.0}}
    for body in (replayed, altered, {**replayed, "signature": "?"}, {**replayed, "key_id": "x"}):
        answer = await here.admin.post("/internal/adapters/v2/evaluations", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "signature_invalid")
    for unknown in (stranger, bystander):
        assert (await unknown.post(here, second, 1.0)).status_code == 403
    assert await here.status("v2") == "evaluating"
    assert (await here.admin.delete(f"/internal/pipeline-keys/{signer.key_id}")).status_code == 204
    assert (await signer.post(here, second, 1.0)).status_code == 403


async def test_results_are_taken_while_they_are_waited_for(here: World, replica: FakeReplica) -> None:
    signer = Signer()
    assert (await signer.introduce(here)).status_code == 201
    assert (await signer.introduce(here)).status_code == 409
    unasked = await here.activated("v1")
    replica.trouble = "not yet"
    early = here.announce("v2", seed=2, evaluated_by="pipeline")
    await here.post(early)
    codes = [(await signer.post(here, one, 1.0)).json()["error"]["code"] for one in (unasked, early)]
    assert codes[0] == "evaluated_by_fleet"
    assert codes[1] in ("not_evaluating", "not_measured")
    assert (await signer.post(here, msgspec.structs.replace(early, adapter_id="v3"), 1.0)).status_code == 404
    replica.trouble = None
    await measured(here, "v2")
    assert (await signer.post(here, early, 1.5)).status_code == 422


async def test_a_pipeline_that_never_posts_fails_its_adapter_and_a_restart_goes_on_waiting(
    place: Place, replica: FakeReplica
) -> None:
    async with place.registry() as here:
        await here.prepare()
        announced = here.announce("v1", evaluated_by="pipeline")
        await here.post(announced)
        await measured(here, "v1")
    async with place.registry(results_deadline_s=0.2) as here:
        await here.post(here.announce("v2", seed=2, evaluated_by="pipeline"))
        assert "its pipeline has posted no results" in (await here.reached("v2", "failed"))["reason"]
        assert await here.status("v1") == "evaluating"
        assert len(replica.asked) == 2


# -- people --------------------------------------------------------------------------------------------


async def test_a_person_may_decide_otherwise_by_name_and_it_is_told(
    here: World, replica: FakeReplica, place: Place
) -> None:
    replica.says = Tongues(base="yes")
    await give_set(here, jsonl(*YES))
    await failed(here, "v1", alias=ALIAS)
    short = await here.admin.post("/internal/adapters/v1/override", json={"by": "ada", "reason": "because"})
    assert (short.status_code, short.json()["error"]["param"]) == (422, "reason")
    [activated] = await heard(place.broker.connect("pipeline"), catalog.ADAPTER_ACTIVATED)
    said = {"by": "ada", "reason": "the set is out of date"}
    answer = await here.admin.post("/internal/adapters/v1/override", json=said)
    assert (answer.status_code, answer.json()["status"]) == (200, "active")
    told = (await activated.first())[0]
    assert (told.overridden_by, told.override_reason) == ("ada", "the set is out of date")
    shown = await reports(here, "v1")
    assert (shown["override"]["actor"], shown["reports"][0]["passed"]) == ("ada", False)
    await record_is(place.broker.connect("replica_worker"), "v1", "active")
    await alias_is(place.broker.connect("gateway"), ALIAS, "v1")


async def test_nobody_activates_what_is_not_finite_or_was_rejected(here: World, replica: FakeReplica) -> None:
    said = {"by": "ada", "reason": "I know what I do"}
    replica.passed, replica.finite = False, False
    await failed(here, "v1")
    refused = await here.admin.post("/internal/adapters/v1/override", json=said)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "not_finite")
    assert (await here.post(here.announce("v2", rank=5))).status_code == 422
    refused = await here.admin.post("/internal/adapters/v2/override", json=said)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "nothing_to_override")
    assert (await here.admin.post("/internal/adapters/v9/override", json=said)).status_code == 404
