"""The client of pipelines against a registry that is served, by event and by POST."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from shared.messages.results import PipelineResults
from shared.pipeline.client import Pipeline
from shared.pipeline.connect import Where, connect
from shared.pipeline.evaluation import Signer
from shared.pipeline.folder import Identity
from shared.pipeline.known import Known
from shared.pipeline.outcome import (
    Activated,
    Failed,
    OutcomeUnknown,
    Progress,
    Refused,
    Rejected,
    UnclearFolder,
    Unreachable,
)
from tests.support.adapter_files import BASE
from tests.support.bus_worlds import NatsWorld
from tests.support.faulty_link import Cut, faulty_link
from tests.support.registry_served import QUICK, where
from tests.support.registry_world import FakeReplica, World


@pytest.fixture(params=["post", "event", "event alone"])
async def pipeline(request: pytest.FixtureRequest, admin_url: str, nats_url: str) -> AsyncIterator[Pipeline]:
    admin_url = "" if request.param == "event alone" else admin_url
    nats_url = "" if request.param == "post" else nats_url
    async with connect(where(admin_url, nats_url), QUICK) as pipeline:
        yield pipeline


@pytest.fixture(params=["post", "event"])
async def asking(request: pytest.FixtureRequest, admin_url: str, nats_url: str) -> AsyncIterator[Pipeline]:
    """One that can ask where an adapter stands."""
    async with connect(where(admin_url, nats_url if request.param == "event" else ""), QUICK) as pipeline:
        yield pipeline


async def test_every_outcome_is_told(here: World, pipeline: Pipeline, replica: FakeReplica) -> None:
    right = here.announce("v1", alias="acme/support:prod")
    rejected = await pipeline.register(msgspec.structs.replace(right, rank=64, alpha=-1.0))
    assert isinstance(rejected, Rejected)
    assert {"rank_too_high", "alpha_invalid"} <= {defect.code for defect in rejected.defects}
    activated = await pipeline.register(right)
    assert isinstance(activated, Activated)
    assert (activated.adapter_id, activated.digest) == ("v1", right.checksum)
    taken = await pipeline.register(here.announce("v1", seed=9))
    assert isinstance(taken, Rejected)
    assert [defect.code for defect in taken.defects] == ["adapter_id_taken"]
    replica.passed, replica.reason = False, "no effect"
    failed = await pipeline.register(here.announce("v2", seed=2))
    assert isinstance(failed, Failed)
    assert "no effect" in str(failed)


async def test_an_outcome_that_was_told_before_is_found_by_asking(
    here: World, asking: Pipeline, replica: FakeReplica
) -> None:
    announced = here.announce("v1")
    first = await asking.register(announced)
    assert await asking.register(announced) == first
    replica.passed, replica.reason = False, "no effect"
    failing = here.announce("v2", seed=2)
    assert await asking.register(failing) == await asking.register(failing)
    assert len(replica.asked) == 2
    replica.passed = True
    foreign = here.announce("v3", seed=3, tenant_id="globex")
    assert isinstance(await asking.register(foreign), Rejected)
    await here.admin.post("/internal/tenants", json={"tenant_id": "globex"})
    assert isinstance(await asking.register(foreign), Activated), "the rejection is remembered, and no longer right"


async def test_an_outcome_that_nobody_heard_is_found_by_asking(
    here: World, admin_url: str, nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an outage of the bus that was longer than consumers are kept."""
    monkeypatch.setattr("shared.pipeline.hearing.OUTCOMES", ())
    monkeypatch.setattr("shared.pipeline.client._LOOK_BESIDE_EVENTS_S", 0.01)
    async with connect(where(admin_url, nats_url), QUICK) as deaf:
        assert isinstance(await deaf.register(here.announce("v1")), Activated)
        assert isinstance(await deaf.register(here.announce("v2", seed=2, rank=64)), Rejected)


async def test_the_bus_may_be_away_between_announcement_and_outcome(
    here: World, buses: NatsWorld, nats_url: str, replica: FakeReplica
) -> None:
    replica.trouble = "busy"
    async with connect(where(nats_url=nats_url), QUICK) as pipeline:
        under_way = asyncio.create_task(pipeline.register(here.announce("v1")))
        await here.reached("v1", "evaluating")
        await buses.lose()
        replica.trouble = None
        late = asyncio.create_task(pipeline.register(here.announce("v2", seed=2)))
        await buses.find()
        assert isinstance(await under_way, Activated)
        assert isinstance(await late, Activated)


async def test_a_pipeline_posts_its_own_results_and_hears_what_they_are_worth(here: World, admin_url: str) -> None:
    key = Ed25519PrivateKey.generate()
    said = {"name": "trainer", "public_key": key.public_key().public_bytes_raw().hex()}
    signer = Signer(
        key_id=(await here.admin.post("/internal/pipeline-keys", json=said)).json()["key_id"], sign=key.sign
    )
    async with faulty_link(admin_url) as link, connect(where(link.url), QUICK) as pipeline:

        async def announced(adapter_id: str, seed: int) -> Known:
            known = await pipeline.announce(here.announce(adapter_id, seed=seed, evaluated_by="pipeline"))
            assert isinstance(known, Known)
            await here.reached(adapter_id, "evaluating")
            return known

        good, bad = await announced("v1", 1), await announced("v2", 2)
        with pytest.raises(Refused, match="not signed for adapter v1"):
            await pipeline.post_evaluation(good, PipelineResults(score=1.0), Signer(key_id="none", sign=key.sign))
        link.plant("POST", Cut(0))  # the first answer is lost
        assert isinstance(await pipeline.post_evaluation(good, PipelineResults(score=0.9), signer), Activated)
        assert isinstance(await pipeline.post_evaluation(bad, PipelineResults(score=0.1), signer), Failed)


async def test_a_folder_is_sent_announced_and_followed(here: World, asking: Pipeline, tmp_path: Path) -> None:
    here.announce("checkpoint-9")
    folder, steps = tmp_path / "inbox" / "checkpoint-9", list[Progress]()
    identity = Identity(tenant_id="acme", base_model_hash=BASE.base_model_hash, dataset_uri="s3://data/9")
    outcome = await asking.register_folder(folder, identity, on_progress=steps.append)
    assert isinstance(outcome, Activated)
    assert outcome.adapter_id == f"acme-checkpoint-9-{outcome.digest[:8]}"
    size_bytes = (folder / "adapter_model.safetensors").stat().st_size
    assert [step for step in steps if step.step == "uploading"][-1].sent_bytes == size_bytes
    known = await asking.state(outcome.adapter_id)
    assert known is not None
    assert (known.dataset_uri, known.weights_uri) == ("s3://data/9", f"upload:{outcome.digest}")


@pytest.mark.parametrize(
    ("said", "code"), [({"use_dora": True}, "dora"), ({"init_lora_weights": "pissa"}, "feature_not_served")]
)
async def test_what_peft_wrote_is_sent_along_with_an_upload(
    here: World, asking: Pipeline, tmp_path: Path, said: dict[str, Any], code: str
) -> None:
    """That the training meant something else stands in the config alone."""
    here.announce("checkpoint-9")
    folder = tmp_path / "inbox" / "checkpoint-9"
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **said}))
    outcome = await asking.register_folder(folder, Identity(tenant_id="acme", base_model_hash=BASE.base_model_hash))
    assert isinstance(outcome, Rejected)
    assert [defect.code for defect in outcome.defects] == [code]


async def test_a_folder_of_something_else_is_no_adapter(asking: Pipeline, tmp_path: Path) -> None:
    identity = Identity(tenant_id="acme", base_model_hash=BASE.base_model_hash)
    for path, sentence in ((tmp_path, "adapter_config.json is missing"), (Path(__file__), "is a file")):
        with pytest.raises(UnclearFolder, match=sentence):
            await asking.register_folder(path, identity)


async def test_no_outcome_in_time_says_how_far_it_came(
    here: World, asking: Pipeline, replica: FakeReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.pipeline.client._LOOK_BESIDE_EVENTS_S", 0.01)
    replica.trouble = "busy"
    announced, seen = here.announce("v1"), list[str]()
    await here.post(announced)
    await here.reached("v1", "evaluating")
    with pytest.raises(OutcomeUnknown) as raised:
        await asking.register(announced, timeout_s=0.5, on_progress=lambda step: seen.append(step.step))
    assert raised.value.status == "evaluating"
    assert "is still evaluating after 0.5 s" in str(raised.value)
    assert seen[-1] == "evaluating"


async def test_whoever_is_cancelled_may_ask_again(here: World, asking: Pipeline, replica: FakeReplica) -> None:
    replica.trouble = "busy"
    announced = here.announce("v1")
    given_up = asyncio.create_task(asking.register(announced))
    await here.reached("v1", "evaluating")
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    again = asyncio.create_task(asking.register(announced))
    replica.trouble = None
    assert isinstance(await again, Activated)


async def test_a_wrong_key_is_refused_at_once(here: World, admin_url: str) -> None:
    async with connect(Where(admin_url=admin_url, admin_key="x" * 20), QUICK) as pipeline:
        with pytest.raises(Refused) as raised:
            await pipeline.register(here.announce("v1"))
    assert (raised.value.status, raised.value.code) == (401, "invalid_admin_key")


async def test_nobody_there_is_said_when_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.bus.nats_link.FIRST_CONNECT_S", 0.2)
    impatient = msgspec.structs.replace(QUICK, give_up_s=0.05)
    async with connect(where("http://127.0.0.1:9"), impatient) as pipeline:
        with pytest.raises(Unreachable, match=r"could not be asked for 0\.05 s: ConnectError"):
            await pipeline.state("v1")
    with pytest.raises(Unreachable, match="no connection to NATS"):
        async with connect(where(nats_url="nats://pipeline:x@127.0.0.1:9"), impatient):
            pass


@pytest.mark.parametrize("nats_url", ["", "127.0.0.1:4222", "nats://127.0.0.1:4222", "nats://pipeline@127.0.0.1"])
def test_a_place_that_is_none_is_said(nats_url: str) -> None:
    with pytest.raises(ValueError, match="nats_url"):
        Where(nats_url=nats_url)


async def test_a_pipeline_without_an_admin_address_says_what_it_lacks(nats_url: str, tmp_path: Path) -> None:
    async with connect(where(nats_url=nats_url), QUICK) as pipeline:
        with pytest.raises(ValueError, match="admin_url"):
            await pipeline.upload(Path(__file__), "0" * 64)
