"""Pauses under load, with the real model and real weights: every answer is the one that nobody disturbed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from services.replica_worker.engine.torch.engine import TorchEngine
from services.replica_worker.engine.torch.policy import TorchPolicy
from shared.base_model import base_model_hash
from shared.messages.generation import GenerateRequest
from tests.support.random_adapter import ALL_TARGETS, RandomAdapter, write_adapter
from tests.support.replica import Heard, Rig, rig
from tests.support.tiny_model import tiny_model_once

ADAPTERS, ANSWER_TOKENS = 4, 96


@asynccontextmanager
async def torch_replica(folder: Path, model: Path, slots: int) -> AsyncIterator[tuple[Rig, list[GenerateRequest]]]:
    """And two requests for each of four adapters: one that takes the best token, and one that draws and may stop."""
    policy = TorchPolicy(slots=slots, max_rows=8, max_context_tokens=256, dtype="float32", threads=1)
    settings = {"ram_budget_bytes": 64 << 20, "disk_budget_bytes": 64 << 20, "max_context_tokens": 256, "slots": slots}
    base = base_model_hash(model)
    async with rig(folder, model, engine=TorchEngine(model, policy), base_hash=base, **settings) as replica:
        asked = []
        for seed in range(1, ADAPTERS + 1):
            path, spec = write_adapter(replica.folder, RandomAdapter(seed=seed), base)
            record = await replica.register(
                spec.adapter_id, path.read_bytes(), rank=spec.rank, alpha=spec.alpha, target_modules=ALL_TARGETS
            )
            for kind, temperature in (("best", 0.0), ("drawn", 1.0)):
                request = replica.request(f"{kind}-{seed}", record, max_tokens=ANSWER_TOKENS)
                sampling = msgspec.structs.replace(request.sampling, temperature=temperature, seed=seed)
                asked.append(msgspec.structs.replace(request, sampling=sampling))
        yield replica, asked


def renamed(request: GenerateRequest, when: str, stop: tuple[str, ...] = ()) -> GenerateRequest:
    sampling = msgspec.structs.replace(request.sampling, stop=stop)
    return msgspec.structs.replace(request, request_id=f"{when}-{request.request_id}", sampling=sampling)


async def together(replica: Rig, requests: list[GenerateRequest]) -> list[Heard]:
    """All at once; time passes a quantum at a time, and gateways are heard, until all are over."""
    heard = [await replica.caller.send(request) for request in requests]
    while not all(each.over for each in heard):
        before = sum(len(each.token_ids) for each in heard)
        await replica.clock.advance(0.3)
        await replica.caller.cancel("nobody")  # whatever a gateway says renews its lease
        await replica.replica.tick()
        await replica.caller.wait(
            lambda: all(each.over for each in heard) or sum(len(each.token_ids) for each in heard) > before + 8  # noqa: B023
        )
    return heard


def stop_of(text: str) -> tuple[str, ...]:
    """A few characters of the last third, if they come for the first time there."""
    found = text[len(text) * 2 // 3 :][:3]
    return (found,) if found and text.index(found) >= len(text) // 3 else ()


async def test_paused_answers_are_the_undisturbed_ones_token_for_token(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with torch_replica(tmp_path, tiny_model_once(tmp_path_factory), slots=1) as (replica, asked):
        alone = [await replica.caller.run(renamed(request, "alone")) for request in asked]
        stops = [stop_of(each.text) for each in alone]
        assert sum(map(bool, stops)) >= 2
        stopped = [
            await replica.caller.run(renamed(request, "stopped", stop))
            for request, stop in zip(asked, stops, strict=True)
        ]
        assert replica.meters.paused._value.get() == 0
        again = [renamed(request, "whole") for request in asked]
        again += [renamed(request, "cut", stop) for request, stop in zip(asked, stops, strict=True)]
        heard = await together(replica, again)
        assert replica.meters.paused._value.get() >= 8
        for each, expected in zip(heard, alone + stopped, strict=True):
            assert (each.token_ids, each.text) == (expected.token_ids, expected.text)
            assert each.finish is not None
            assert expected.finish is not None
            usage, before = each.finish.usage, expected.finish.usage
            assert (each.finish.reason, usage.completion_tokens) == (expected.finish.reason, before.completion_tokens)
            positions = [chunk.position for chunk in each.chunks if chunk.token_ids]
            assert positions == list(range(len(each.token_ids)))
        await replica.settled()
        replica.assert_sound()


async def test_with_slots_enough_nothing_is_ever_paused(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with torch_replica(tmp_path, tiny_model_once(tmp_path_factory), slots=ADAPTERS) as (replica, asked):
        heard = await together(replica, [renamed(request, str(at)) for at in range(3) for request in asked])
        assert all(each.finish is not None and each.finish.error is None for each in heard)
        assert replica.meters.paused._value.get() == 0
