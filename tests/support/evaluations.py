"""Evaluation sets and signed results, as tenants and pipelines make them."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from shared.messages.adapters import AdapterRegistered
from shared.messages.completions import CasePrompt
from shared.messages.results import PipelineResults, signed_bytes
from tests.support.registry_world import World

YES = ({"exact": "yes"},) * 3


class Tongues:
    """What each adapter, and the base ("base"), answers to whatever it is asked."""

    def __init__(self, **texts: str) -> None:
        self.texts = {"base": "no", **texts}

    def __call__(self, adapter_id: str | None, prompt: CasePrompt) -> str:
        return self.texts.get(adapter_id or "base", "yes")


def jsonl(*expected: dict[str, Any]) -> bytes:
    """One case for each expectation; its number is its question."""
    cases = ({"messages": [{"role": "user", "content": f"Question {at}"}], **one} for at, one in enumerate(expected))
    return b"\n".join(json.dumps(case).encode() for case in cases)


async def give_set(here: World, raw: bytes, **asked: Any) -> httpx.Response:
    params = {"tenant_id": "acme", **asked}
    return await here.admin.post("/internal/evaluation-sets", params=params, content=raw)


async def reports(here: World, adapter_id: str) -> dict[str, Any]:
    answer: dict[str, Any] = (await here.admin.get(f"/internal/adapters/{adapter_id}/evaluations")).json()
    return answer


async def failed(here: World, adapter_id: str, *, seed: int = 0, **said: Any) -> str:
    """The reason why it did not pass."""
    assert (await here.post(here.announce(adapter_id, seed=seed, **said))).status_code == 201
    reason: str = (await here.reached(adapter_id, "failed"))["reason"]
    return reason


class Signer:
    """A pipeline with a key of its own."""

    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.generate()
        self.key_id = ""

    async def introduce(self, here: World, tenant_id: str = "") -> httpx.Response:
        body = {"name": "ci", "public_key": self._key.public_key().public_bytes_raw().hex(), "tenant_id": tenant_id}
        answer = await here.admin.post("/internal/pipeline-keys", json=body)
        self.key_id = answer.json().get("key_id", self.key_id)
        return answer

    def posted(self, announced: AdapterRegistered, results: PipelineResults) -> dict[str, Any]:
        signature = self._key.sign(signed_bytes(announced.adapter_id, announced.checksum, results))
        return {
            "results": msgspec.to_builtins(results),
            "signature": base64.b64encode(signature).decode(),
            "key_id": self.key_id,
        }

    async def post(self, here: World, announced: AdapterRegistered, score: float, **said: Any) -> httpx.Response:
        body = self.posted(announced, PipelineResults(score=score, **said))
        return await here.admin.post(f"/internal/adapters/{announced.adapter_id}/evaluations", json=body)
