"""Announcements are kept before their file is read, taken up again after a crash, and end at a deadline."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import msgspec
import pytest

from services.registry.core import lifecycle, records
from services.registry.gating.verdicts import VerdictPolicy, Verdicts
from services.registry.io import adapter_rows
from services.registry.io.meters import Meters
from services.registry.io.weights import Weights, WeightsSources
from shared.contracts import catalog
from shared.messages.adapters import AdapterLoadFailed, Defect
from shared.messages.identity import key_of
from shared.runtime.clock import ManualClock
from shared.runtime.metrics import Metrics
from shared.store.port import StoreUnavailable
from tests.support.held_replica import HeldReplica
from tests.support.registry_place import Place
from tests.support.registry_watch import Heard, alias_is, eventually, heard, record_is, value_is
from tests.support.registry_world import World

ALIAS = "acme/support:prod"


class Away:
    """The store, as verifications meet it, until it is `back`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.back = False
        self.asked = 0
        away, self._open = self, WeightsSources.open

        async def open(sources: WeightsSources, uri: str) -> Weights | Defect:
            return await away.open(sources, uri)

        monkeypatch.setattr(WeightsSources, "open", open)

    async def open(self, sources: WeightsSources, uri: str) -> Weights | Defect:
        self.asked += 1
        if not self.back:
            raise StoreUnavailable("planted")
        return await self._open(sources, uri)


async def states(here: World, adapter_id: str) -> list[str]:
    story = (await here.admin.get(f"/internal/adapters/{adapter_id}")).json()
    return [step["state"] for step in story["history"]]


async def test_kill_9_in_the_middle_of_a_verification_loses_nothing(place: Place) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.dying_verification", str(place.folder), place.database_url,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    async with asyncio.timeout(30):
        assert await process.wait() == -signal.SIGKILL
    await place.replicas("replica-a")
    async with place.registry() as here:
        await here.reached("v1", "active")
        assert await states(here, "v1") == ["registered", "verified", "evaluating", "active"]


async def test_a_post_that_meets_no_store_is_kept_and_ended_by_the_registry(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place.registry() as here:
        await here.prepare()
        store = Away(monkeypatch)
        answer = await here.post(here.announce("v1"))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert await here.status("v1") == "registered"
        store.back = True
        await here.reached("v1", "evaluating")


async def test_a_corrected_announcement_does_not_wait_for_what_another_registry_has_rejected(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, reading, go_on = WeightsSources.open, asyncio.Event(), asyncio.Event()

    async def slow_at_first(sources: WeightsSources, uri: str) -> Weights | Defect:
        if not reading.is_set():
            reading.set()
            await go_on.wait()
        return await begin(sources, uri)

    monkeypatch.setattr(WeightsSources, "open", slow_at_first)
    async with place.registry() as here:
        await here.prepare()
        wrong = asyncio.create_task(here.post(here.announce("v1")))
        async with asyncio.timeout(10):
            await reading.wait()
            async with here.registry.database.write() as connection:
                adapter = await adapter_rows.find(connection, "v1")
                assert adapter is not None
                step = lifecycle.move(adapter.status, "rejected", "planted", 1.0)
                await adapter_rows.save(connection, records.after_move(adapter, step), [step])
            assert (await here.post(here.announce("v1", seed=2))).status_code == 201
            go_on.set()
            assert (await wrong).status_code == 409


async def test_whoever_announces_it_again_gets_the_outcome(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with place.registry() as here:
        await here.prepare()
        store = Away(monkeypatch)
        announced = here.announce("v1")
        assert (await here.post(announced)).status_code == 503
        store.back = True
        answer = await here.post(announced)
        assert answer.status_code in (200, 201)  # whether it or the registry itself came first
        assert answer.json()["status"] in ("verified", "evaluating")


async def test_an_event_that_meets_no_store_is_kept_and_told_of_once_it_is_decided(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = place.broker.connect("pipeline")
    [verified] = await heard(pipeline, catalog.ADAPTER_VERIFIED)
    async with place.registry() as here:
        await here.prepare()
        store = Away(monkeypatch)
        await pipeline.publish(catalog.ADAPTER_REGISTERED, here.announce("v1"))

        async def kept() -> bool:
            return await here.status("v1") == "registered" and store.asked > 1

        await eventually(kept)
        store.back = True
        [found] = await verified.first()
        assert found.adapter_id == "v1"


async def test_an_announcement_whose_store_never_comes_back_fails_with_what_stood_in_the_way(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    [failed] = await heard(place.broker.connect("pipeline"), catalog.ADAPTER_FAILED)
    async with place.registry(verification_deadline_s=0.2) as here:
        await here.prepare()
        Away(monkeypatch)
        assert (await here.post(here.announce("v1"))).status_code == 503
        story = await here.reached("v1", "failed")
        assert story["reason"].endswith("before its deadline: planted")
        assert (await failed.first())[0].reason == story["reason"]


async def test_one_announcement_at_a_time_is_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    async with place.registry() as here:
        await here.prepare()
        store = Away(monkeypatch)
        store.back = True
        announced = here.announce("v1")
        answers = await asyncio.gather(*(here.post(announced) for _ in range(5)))
        assert sorted(answer.status_code for answer in answers) == [200] * 4 + [201]
        assert store.asked == 1


async def test_every_move_is_told(place: Place) -> None:
    channels = (
        catalog.ADAPTER_REGISTERED, catalog.ADAPTER_VERIFIED, catalog.ADAPTER_EVALUATING, catalog.ADAPTER_EVALUATED,
        catalog.ADAPTER_ACTIVATED, catalog.ADAPTER_RETIRED,
    )  # fmt: skip
    told = [await Heard().follow(place.broker.connect("registry"), catalog.ADAPTER_REGISTERED)]
    told += await heard(place.broker.connect("pipeline"), *channels[1:])
    await place.replicas("replica-a")
    async with place.registry() as here:
        await here.prepare()
        await here.activated("v1")
        assert (await here.admin.post("/internal/adapters/v1/retire")).status_code == 200
        for one in told:
            assert [message.adapter_id for message in await one.first()] == ["v1"]


async def test_c28_an_evaluation_that_fails_once_is_asked_again_and_ends_active(place: Place) -> None:
    [replica] = await place.replicas("replica-a")
    replica.trouble = "the step after the load failed"
    async with place.registry() as here:
        await here.prepare()
        await here.post(here.announce("v1", alias=ALIAS))
        await eventually(lambda: asked(replica.asked, 2))
        assert await here.status("v1") == "evaluating"
        replica.trouble = None
        await here.reached("v1", "active")


async def test_c39_what_is_deployed_while_no_engine_is_up_is_served_once_one_is(place: Place) -> None:
    async with place.registry() as here:
        await here.prepare()
        await here.post(here.announce("v1", alias=ALIAS))
        await here.reached("v1", "evaluating")
        await place.replicas("replica-a")
        await here.reached("v1", "active")
        await alias_is(place.broker.connect("gateway"), ALIAS, "v1")


# -- lost bytes ----------------------------------------------------------------------------------------


async def complain(place: Place, here: World, code: str = "corrupt") -> None:
    story = (await here.admin.get("/internal/adapters/v1")).json()
    told = AdapterLoadFailed(
        adapter_id="v1", digest=story["digest"], replica_id="replica-a", code=code, reason="it does not load"
    )
    await place.broker.connect("replica_worker").publish(catalog.ADAPTER_LOAD_FAILED, told)


@pytest.mark.parametrize(("code", "word"), [("corrupt", "corrupt"), ("missing", "no longer in the store")])
async def test_c36_bytes_that_the_store_lost_fail_their_adapter_and_its_alias_says_so(
    place: Place, code: str, word: str
) -> None:
    await place.replicas("replica-a")
    async with place.registry() as here:
        await here.prepare()
        await here.activated("v1", alias=ALIAS)
        gateway, worker = place.broker.connect("gateway"), place.broker.connect("replica_worker")
        await alias_is(gateway, ALIAS, "v1")
        file = place.folder / "store" / (await here.registry.adapters.find("v1")).store_key  # type: ignore[union-attr]
        file.unlink() if code == "missing" else file.write_bytes(b"x" + file.read_bytes()[1:])
        await complain(place, here, code)
        assert word in (await here.reached("v1", "failed"))["reason"]
        await record_is(worker, "v1", "failed")
        refused = await here.admin.post("/internal/adapters/v1/override", json={"by": "ada", "reason": "it was fine"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "nothing_to_override")
    async with place.registry() as here:
        await ready(here)
        assert (await gateway.state(catalog.ALIAS).get(key_of(ALIAS))).value.adapter_id == "v1"  # type: ignore[union-attr]
        await record_is(worker, "v1", "failed")
        assert (await here.admin.get("/internal/aliases")).json()["aliases"][0]["adapter_id"] == "v1"
        await here.activated("v2", seed=2, alias=ALIAS)
        await alias_is(gateway, ALIAS, "v2")
        await value_is(worker, catalog.ADAPTER, key_of("v1"), lambda record: record is None)


async def test_a_file_whose_bytes_the_store_lost_can_be_uploaded_again(place: Place) -> None:
    await place.replicas("replica-a")
    async with place.registry() as here:
        await here.prepare()
        announced = await here.activated("v1")
        path = f"/internal/uploads/{announced.checksum}"
        file = place.folder / "store" / (await here.registry.adapters.find("v1")).store_key  # type: ignore[union-attr]
        right = file.read_bytes()
        file.write_bytes(b"x" + right[1:])
        await complain(place, here)
        await here.reached("v1", "failed")
        assert (await here.admin.get(path)).json()["weights_uri"] is None
        uri = (await here.admin.put(path, content=right)).json()["weights_uri"]
        answer = await here.post(msgspec.structs.replace(announced, adapter_id="v1-again", weights_uri=uri))
        assert answer.status_code == 201
        await here.reached("v1-again", "active")
        assert file.read_bytes() == right


async def test_a_complaint_that_the_store_does_not_bear_out_changes_nothing(place: Place) -> None:
    await place.replicas("replica-a")
    async with place.registry() as here:
        await here.prepare()
        await here.activated("v1")
        for _ in range(3):
            await complain(place, here)
        file = place.folder / "store" / (await here.registry.adapters.find("v1")).store_key  # type: ignore[union-attr]
        await here.activated("v2", seed=2)
        assert await here.status("v1") == "active"
        assert file.exists()


async def test_a_deadline_is_kept_by_one_sweep_whatever_state_it_ends(place: Place) -> None:
    clock = ManualClock()
    async with place.registry(clock=clock) as here:
        await here.prepare()
        await here.post(here.announce("v1"))
        await here.reached("v1", "evaluating")
        await clock.advance(599.0)
        assert await here.status("v1") == "evaluating"
        await clock.advance(2.0)
        assert "before its deadline" in (await here.reached("v1", "failed"))["reason"]


async def test_who_waits_for_its_turn_waits_as_long_as_others_have_theirs(place: Place) -> None:
    """A long batch is in line for hours; a line that stands still ends at the deadline all the same."""
    clock = ManualClock()
    async with place.registry(clock=clock, evaluations_at_once=1) as here:
        await here.prepare()
        await HeldReplica.at(place)
        for name in ("v0", "v1", "v2"):  # there is room for the first of them, which does not end
            await here.post(here.announce(name, seed=ord(name[1])))
        await here.reached("v0", "evaluating")
        await clock.advance(400.0)
        await has_its_turn(here, clock, "v2")
        await clock.advance(202.0)
        assert await here.status("v1") == "verified"
        assert (await here.registry.adapters.find("v2")).deadline_s == 1000.0  # type: ignore[union-attr]
        await clock.advance(800.0)
        reason = (await here.reached("v1", "failed"))["reason"]
    assert reason.startswith("no replica evaluated it before its deadline")


async def has_its_turn(here: World, clock: ManualClock, adapter_id: str) -> None:
    """At another registry."""
    policy = VerdictPolicy(evaluation_deadline_s=600.0, results_deadline_s=600.0)
    await Verdicts(here.registry.database, clock, Meters(Metrics("another")), policy).begin(adapter_id)


async def asked(questions: list[object], count: int) -> bool:
    return len(questions) >= count


async def ready(here: World) -> None:
    async def is_ready() -> bool:
        return (await here.admin.get("/readyz")).status_code == 200

    await eventually(is_ready)
