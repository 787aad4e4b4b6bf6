"""The prefix cache never serves what another adapter, another version or another tenant computed."""

from __future__ import annotations

import msgspec
import pytest

from services.replica_worker.engine.port import EngineRequest
from tests.support.engine_subject import Subject, prompt_of
from tests.support.token_log import greedy

pytestmark = pytest.mark.parametrize("workshop", ["bfloat16"], indirect=True)

PROMPT = prompt_of(7, 200)


def asked(request_id: str, slot: int = -1, salt: str = "tenant-a") -> EngineRequest:
    return msgspec.structs.replace(greedy(request_id, PROMPT, slot), cache_salt=salt)


async def cached(subject: Subject, request: EngineRequest) -> int:
    """How much of the prompt was found."""
    await subject.answers(request)
    return subject.log.tokens[request.request_id][0].cached_tokens


async def test_c57_a_tenant_finds_its_own_prefix_and_nobody_elses(subject: Subject) -> None:
    assert await cached(subject, asked("first")) == 0
    assert await cached(subject, asked("again")) > 100
    assert await cached(subject, asked("other tenant", salt="tenant-b")) == 0
    assert await cached(subject, asked("no tenant", salt="")) == 0


async def test_adapters_and_the_base_share_no_prefix(subject: Subject) -> None:
    await subject.put(0, seed=0)
    await subject.put(1, seed=1)
    for slot in (-1, 0, 1):
        assert await cached(subject, asked(f"first-{slot}", slot)) == 0
    for slot in (-1, 0, 1):
        assert await cached(subject, asked(f"again-{slot}", slot)) > 100


async def test_c02_the_next_version_in_the_same_slot_equals_a_cold_one(subject: Subject) -> None:
    await subject.put(3, seed=2)
    cold = await subject.answers(asked("cold version 2", 3))
    await subject.put(0, seed=1)
    old = await subject.answers(asked("version 1", 0))
    assert await cached(subject, asked("version 1 again", 0)) > 100
    await subject.put(0, seed=2)
    assert await cached(subject, asked("version 2", 0)) == 0
    assert [subject.log.token_ids("version 2")] == cold != old


async def test_what_a_slot_computed_is_not_found_after_it_was_loaded_again(subject: Subject) -> None:
    adapter = await subject.read(0)
    await subject.engine.load(0, adapter)
    await subject.answers(asked("first", 0))
    assert await cached(subject, asked("again", 0)) > 100
    await subject.engine.clear(0)
    await subject.engine.load(0, adapter)
    assert await cached(subject, asked("loaded again", 0)) == 0
