"""What a customer is told of the prompt tokens that did not have to be computed."""

from __future__ import annotations

from services.replica_worker.engine.blocks import BLOCK_TOKENS
from shared.messages.generation import Usage
from tests.support.replica import Heard, Rig


def usage_of(heard: Heard) -> Usage:
    assert heard.finish is not None
    return heard.finish.usage


async def test_a_prompt_that_was_seen_before_is_counted_as_cached(replica: Rig) -> None:
    first = usage_of(await replica.caller.run(replica.request("r1")))
    again = usage_of(await replica.caller.run(replica.request("r2")))
    assert first.prompt_tokens > BLOCK_TOKENS
    assert (first.cached_tokens, again.cached_tokens) == (0, first.prompt_tokens // BLOCK_TOKENS * BLOCK_TOKENS)


async def test_c57_nothing_is_cached_for_another_tenant(replica: Rig) -> None:
    for salt, cached in (("acme", False), ("umbrella", False), ("acme", True)):
        heard = await replica.caller.run(replica.request(f"r-{salt}-{cached}", cache_salt=salt))
        assert bool(usage_of(heard).cached_tokens) is cached


async def test_a_continuation_never_counts_more_than_its_prompt(replica: Rig) -> None:
    whole = await replica.caller.run(replica.request("r1", max_tokens=60))
    continued = replica.request("r2", max_tokens=60, produced_token_ids=whole.token_ids[:50])
    rest = usage_of(await replica.caller.run(continued))
    assert rest.cached_tokens == rest.prompt_tokens == usage_of(whole).prompt_tokens


async def test_who_leaves_before_the_first_token_was_told_of_none(replica: Rig) -> None:
    heard = await replica.caller.run(replica.request("r1", max_tokens=2, produced_token_ids=(5, 6)))
    assert usage_of(heard).cached_tokens == 0
