"""What one customer's prompt leaves in a replica's cache is found by nobody else, whatever they send."""

from __future__ import annotations

from typing import Any

from openai import OpenAI

from infra.local.temporary import TemporaryFleet
from shared.messages.identity import key_of
from tests.support.pipeline import Pipeline
from tests.support.waiting import eventually

PROMPT = "The parcel that I ordered for my mother's birthday has not arrived, and nobody tells me where it is. " * 3


def test_c57_a_foreign_cache_salt_finds_nothing(fleet: TemporaryFleet, pipeline: Pipeline) -> None:
    url, base = f"{fleet.connection.url}/v1", pipeline.base["name"]
    theirs, ours = (
        OpenAI(base_url=url, api_key=pipeline.key(tenant), max_retries=0) for tenant in ("salty", "peppery")
    )
    with theirs, ours:
        for client in (theirs, ours):
            eventually(lambda client=client: {each.id for each in client.models.list()} or None, "the key to be known")
        found: list[int] = []

        def met_by_both() -> bool:
            """A replica has nothing of a prompt once: when it meets it."""
            found.append(_cached(theirs, base))
            return found.count(0) == 2

        eventually(met_by_both, "both replicas to have met the prompt")
        assert _cached(theirs, base) > 0, "whichever is asked"
        assert _cached(ours, base, cache_salt=key_of("salty")) == 0, "theirs by name, and yet not theirs"
        eventually(lambda: _cached(ours, base) > 0, "its own, from a moment before")
        assert _cached(theirs, base) > 0, "and what was there is there still"


def _cached(client: OpenAI, model: str, **more: Any) -> int:
    """How many tokens of the prompt the replica had already."""
    messages: Any = [{"role": "user", "content": PROMPT}]
    answer = client.chat.completions.create(model=model, messages=messages, max_tokens=2, extra_body=more)
    assert answer.usage is not None
    details = answer.usage.prompt_tokens_details
    return 0 if details is None else details.cached_tokens or 0
