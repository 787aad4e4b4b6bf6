"""Adapters whose effect is on record, and what became of their proofs."""

from __future__ import annotations

import asyncio

import msgspec

from shared.contracts.catalog import ADAPTER_EFFECT_MISMATCH, EVALUATE
from shared.messages.adapters import EffectMismatch
from shared.messages.desired import AdapterRecord
from shared.messages.operations import EvaluateAdapter
from tests.support.replica import DEADLINE_S, REPLICA_ID, Heard, Rig
from tests.support.replica_operations import unload


class Mismatches:
    """What the registry hears of quarantined adapters."""

    def __init__(self) -> None:
        self.told: list[EffectMismatch] = []
        self._news = asyncio.Condition()

    async def listen(self, replica: Rig) -> None:
        await replica.registry.consume(ADAPTER_EFFECT_MISMATCH, "test", self._on_mismatch)

    async def wait(self, count: int) -> list[EffectMismatch]:
        async with asyncio.timeout(DEADLINE_S), self._news:
            await self._news.wait_for(lambda: len(self.told) >= count)
        return self.told

    async def _on_mismatch(self, event: EffectMismatch, ids: tuple[str, ...]) -> None:
        async with self._news:
            self.told.append(event)
            self._news.notify_all()


async def evaluated(replica: Rig, record: AdapterRecord) -> AdapterRecord:
    """The record as the registry tells it after an evaluation; the adapter is on no tier then."""
    found = await replica.registry.ask(EVALUATE, EvaluateAdapter(record=record), REPLICA_ID, timeout_s=30)
    assert found.effects, found.reason
    known = msgspec.structs.replace(record, effects=found.effects, fingerprint=found.fingerprint)
    await replica.tell(known)
    assert (await unload(replica, known)).ok
    replica.replica.loader.slots.effects.forget(record.key)  # what the record says is all that is known
    return known


async def truth(replica: Rig, request_id: str, record: AdapterRecord) -> tuple[int, ...]:
    """The tokens that this adapter gives; nothing of it is left in the replica afterwards."""
    heard = await replica.caller.run(replica.request(request_id, record))
    assert heard.finish is not None, heard.answers
    assert (await unload(replica, record)).ok
    return heard.token_ids


def outcomes(replica: Rig) -> dict[str, float]:
    """How many proofs ended how."""
    (family,) = replica.meters.proofs.collect()
    return {one.labels["outcome"]: one.value for one in family.samples if one.name.endswith("_total")}


def assert_silent(replica: Rig, heard: Heard) -> None:
    """No token of the request has left the worker, in whatever frame."""
    request_ids = {answer.request_id for answer in heard.answers}
    frames = [chunk for frame in replica.caller.frames for chunk in frame.chunks]
    assert [chunk for chunk in frames if chunk.request_id in request_ids and chunk.token_ids] == []
