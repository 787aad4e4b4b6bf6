"""What is decided about a merged replica: which adapter, whether its weights are right, and who may come in."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.replica_worker.__main__ import to_merge
from services.replica_worker.core.admission import Door, admit
from services.replica_worker.core.effect import Distribution
from services.replica_worker.core.merged import Probed, allowed, telling, wrong_merge
from services.replica_worker.settings import PREFIX, Settings
from shared.bus.memory import MemoryBroker
from shared.contracts.catalog import ADAPTER
from shared.messages.generation import ChatMessage, GenerateRequest, Sampling
from shared.messages.identity import AdapterKey, key_of
from shared.runtime.settings import SettingsError, read
from tests.simulation.speakers import BASE_HASH, adapter

DTYPES = ("float32", "bfloat16")
MERGED = AdapterKey(adapter_id="acme-1", digest="a" * 64)


def settings(**changes: Any) -> Settings:
    given: dict[str, Any] = {"merged": "acme-1", **changes}
    return Settings(
        replica_id="merged-0", model_folder=Path("/m"), store_url="file:///s", cache_folder=Path("/c"), **given
    )


def after(*logprobs: float, finite: bool = True) -> Distribution:
    return Distribution(finite=finite, token_ids=tuple(range(len(logprobs))), logprobs=logprobs)


def probed(shift: float, error: float) -> Probed:
    return Probed(base=after(-1.0), unmerged=after(-1.0 - shift), merged=after(-1.0 - shift - error))


@pytest.mark.parametrize("dtype", DTYPES)
@given(shift=st.floats(0.0, 20.0))
def test_what_is_within_the_tolerance_is_right_and_what_is_beyond_is_not(dtype: str, shift: float) -> None:
    limit = allowed(shift, dtype)
    assert wrong_merge([probed(shift, 0.99 * limit)], dtype) == ""
    assert "are allowed" in wrong_merge([probed(0.0, 0.0), probed(shift, 1.01 * limit)], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@given(shift=st.floats(0.0, 20.0))
def test_a_merge_that_can_be_told_from_the_base_is_found_when_it_is_missing(dtype: str, shift: float) -> None:
    missing = Probed(base=after(-1.0), unmerged=after(-1.0 - shift), merged=after(-1.0))
    assert not telling([missing], dtype) or wrong_merge([missing], dtype)
    assert telling([probed(0.7, 0.0)], dtype)
    assert not telling([probed(0.0, 0.0)], dtype)


def test_what_is_not_finite_is_wrong() -> None:
    nothing = Probed(base=after(-1.0), unmerged=after(-2.0), merged=after(-2.0, finite=False))
    assert wrong_merge([nothing], "float32") == "the merged weights give an output that is not finite"


def test_an_unknown_dtype_is_taken_for_16_bits() -> None:
    assert allowed(1.0, "float16") == allowed(1.0, "bfloat16")


@pytest.mark.parametrize("key", [MERGED, AdapterKey(adapter_id="acme-2", digest="a" * 64), None])
def test_only_its_own_adapter_comes_in(key: AdapterKey | None) -> None:
    door = Door(
        pool_id="p", base_model_hash="b", only=MERGED, not_ready="", draining=False, waiting=0, queue_limit=1,
        tokens_in_flight=0, tokens_per_s=0.0,
    )  # fmt: skip
    request = GenerateRequest(
        request_id="r", gateway_id="g", tenant_id="acme", pool_id="p", base_model_hash="b",
        messages=(ChatMessage(role="user", content="hello"),), sampling=Sampling(seed=1, max_tokens=1),
        adapter_id=key.adapter_id if key else None, digest=key.digest if key else None,
    )  # fmt: skip
    refusal = admit(request, door)
    if key == MERGED:
        assert refusal is None
    else:
        assert refusal is not None
        assert (refusal.code, refusal.elsewhere) == ("wrong_pool", True)
        assert "acme-1 alone" in refusal.reason


def test_another_engine_than_torch_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="MERGED needs ENGINE=torch, not vllm"):
        settings(engine="vllm")
    environ = {"REPLICA_ID": "r", "MODEL_FOLDER": "/m", "STORE_URL": "file:///s", "CACHE_FOLDER": "/c", "MERGED": "x"}
    assert read(Settings, PREFIX, {PREFIX + name: value for name, value in environ.items()}).merged == "x"


@pytest.mark.parametrize("by", ["adapter_id", "digest"])
async def test_it_waits_until_its_adapter_is_active(by: str) -> None:
    record = adapter("acme-1", status="verified")
    broker = MemoryBroker()
    registry = broker.connect("registry").state(ADAPTER)
    await registry.put(adapter("acme-2"), key_of("acme-2"))
    await registry.put(record, key_of("acme-1"))
    waiting = asyncio.create_task(
        to_merge(settings(merged=getattr(record, by)), broker.connect("replica_worker"), record.base_model_hash)
    )
    await asyncio.sleep(0)
    await registry.put(active := msgspec.structs.replace(record, status="active"), key_of("acme-1"))
    async with asyncio.timeout(5):
        assert await waiting == active
    assert not broker.buckets[ADAPTER.name].watches


async def test_it_ends_with_a_sentence_when_its_adapter_never_comes() -> None:
    broker = MemoryBroker()
    with pytest.raises(SettingsError, match="no adapter acme-1 was active within 0 s"):
        await to_merge(settings(merged_wait_s=0.0), broker.connect("replica_worker"), BASE_HASH)


async def test_an_adapter_of_another_base_is_refused_before_anything_is_started() -> None:
    broker = MemoryBroker()
    record = adapter("acme-1")
    await broker.connect("registry").state(ADAPTER).put(record, key_of("acme-1"))
    with pytest.raises(
        SettingsError, match=f"acme-1 belongs to base model {record.base_model_hash[:12]}, this .* ffff"
    ):
        await to_merge(settings(), broker.connect("replica_worker"), "f" * 64)
    assert not broker.buckets[ADAPTER.name].watches
