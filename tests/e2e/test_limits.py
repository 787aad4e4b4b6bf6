"""What an operator says with `lorafleet limits` is what a customer meets, and the embedded Valkey counts it."""

from __future__ import annotations

import httpx
from openai import OpenAI, RateLimitError

from infra.local.temporary import TemporaryFleet
from tests.support.pipeline import Pipeline
from tests.support.waiting import eventually


def test_a_customer_meets_the_limit_that_an_operator_set(fleet: TemporaryFleet, pipeline: Pipeline) -> None:
    key = pipeline.key("hasty")
    said = fleet.console("limits", "set", "hasty", "--requests-per-min", "3", "--tokens-per-min", "100000")
    assert said.stdout == "tenant hasty: 3 requests a minute, 100000 tokens a minute, any number of streams\n"
    with OpenAI(base_url=f"{fleet.connection.url}/v1", api_key=key, max_retries=0) as client:
        base = next(iter(client.models.list())).id

        def refusal() -> RateLimitError | None:
            try:
                client.chat.completions.create(
                    model=base, max_tokens=4, messages=[{"role": "user", "content": "hello"}]
                )
            except RateLimitError as error:
                return error
            return None

        refused = eventually(refusal, "the gateway to hold the limit")
        killed = fleet.kill("valkey")
        assert eventually(lambda: fleet.pid("valkey") != killed, "another Valkey")
        eventually(lambda: refusal() and _together(fleet), "the gateway to find it")
        assert refusal() is not None, "it was told what the minute had"
    assert refused.code == "rate_limit_exceeded"
    assert refused.response.headers["x-ratelimit-remaining-requests"] == "0"
    shown = fleet.console("limits", "show", "hasty").stdout.splitlines()
    assert shown[1].split() == ["tenant", "hasty", "3", "100000", "-"]


def _together(fleet: TemporaryFleet) -> bool:
    """Whether limits are held together with other gateways."""
    told = httpx.get(f"{fleet.connection.url}/metrics", trust_env=False).text
    return "lorafleet_gateway_limits_fallback 0.0" in told.splitlines()
