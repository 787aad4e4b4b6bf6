"""Usage of a whole fleet: what clients got is on record, and what they said is nowhere."""

from __future__ import annotations

import json
import secrets
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import BadRequestError, OpenAI

from infra.local.temporary import TemporaryFleet
from tests.support.asking import wait_answers
from tests.support.pipeline import Pipeline
from tests.support.traces import traces
from tests.support.waiting import eventually

KINDS = ("stream", "whole", "leave", "refused")
OF_EACH = 25
SEEN_BEFORE_LEAVING = 3
ALIAS = "ledger/canary:prod"


class Customer:
    """A tenant of its own, whose every request has an id that the test knows."""

    def __init__(self, client: OpenAI, base: str) -> None:
        self._client = client
        self._base = base
        self.answers: list[str] = []

    def ask(self, kind: str, request_id: str, prompt: str = "Tell me a very long story.") -> int:
        """One request; how many tokens it certainly got."""
        with_id = {"extra_headers": {"x-request-id": request_id}, "temperature": 0}
        messages: Any = [{"role": "user", "content": prompt * (1_000 if kind == "refused" else 1)}]
        create: Any = self._client.chat.completions.create
        match kind:
            case "stream":
                usage = {"stream": True, "stream_options": {"include_usage": True}}
                chunks = list(create(model=ALIAS, messages=messages, max_tokens=24, **usage, **with_id))
                return int(chunks[-1].usage.completion_tokens)
            case "whole":
                wild = {"temperature": 1.5, "max_tokens": 24}  # nobody else gets this answer
                answer = create(model=self._base, messages=messages, **{**with_id, **wild})
                self.answers.append(answer.choices[0].message.content)
                return int(answer.usage.completion_tokens)
            case "leave":
                reading = create(model=self._base, messages=messages, max_tokens=1_500, stream=True, **with_id)
                for _ in range(SEEN_BEFORE_LEAVING):
                    next(reading)
                reading.close()
                return SEEN_BEFORE_LEAVING
        with pytest.raises(BadRequestError, match="context"):
            create(model=self._base, messages=messages, **with_id)
        return 0


@pytest.fixture(scope="module")
def customer(fleet: TemporaryFleet, pipeline: Pipeline, canary_folders: dict[str, Path]) -> Any:
    marker, folder = next(iter(canary_folders.items()))
    with OpenAI(base_url=f"{fleet.connection.url}/v1", api_key=pipeline.key("ledger"), max_retries=0) as client:
        pipeline.bring(folder, "ledger-1", ALIAS)
        wait_answers(client, ALIAS, marker)
        made = Customer(client, pipeline.base["name"])
        made.ask("whole", "ledger-first")
        eventually(lambda: "ledger-first" in recorded(pipeline), "all that was asked so far to be on record")
        yield made


def recorded(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    """The tenant's records by request id; none while the registry is away."""
    try:
        answer = pipeline.admin.get("/internal/usage", params={"tenant_id": "ledger"})
    except httpx.TransportError:
        return {}
    return {one["request_id"]: one for one in answer.json()["usage"]} if answer.status_code == 200 else {}


def delivered(fleet: TemporaryFleet) -> float:
    """Tokens that the gateway counted."""
    lines = httpx.get(f"{fleet.connection.url}/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("lorafleet_gateway_tokens_total "))


def test_c76_usage_is_what_clients_got_though_the_registry_is_killed_meanwhile(
    fleet: TemporaryFleet, pipeline: Pipeline, customer: Customer
) -> None:
    wishes = {f"ledger-{kind}-{at}": kind for at in range(OF_EACH) for kind in KINDS}
    before_tokens, before = delivered(fleet), recorded(pipeline)
    with ThreadPoolExecutor(8) as pool:
        asking = {pool.submit(customer.ask, kind, name): name for name, kind in wishes.items()}
        wait(asking, return_when=FIRST_COMPLETED)
        fleet.kill("registry")
        got = {name: future.result() for future, name in asking.items()}
    eventually(lambda: wishes.keys() <= recorded(pipeline).keys(), "the registry to have every request on record")
    records = {name: one for name, one in recorded(pipeline).items() if name not in before}
    assert records.keys() == wishes.keys()
    for name, kind in wishes.items():
        one = records[name]
        assert one["completion_tokens"] >= got[name] if kind == "leave" else one["completion_tokens"] == got[name]
        assert one["adapter_id"] == ("ledger-1" if kind == "stream" else "base")
    outcomes = {kind: {records[name]["outcome"] for name in wishes if wishes[name] == kind} for kind in KINDS}
    assert outcomes["leave"] == {"client_left"}
    assert outcomes["refused"] == {"context_length_exceeded"}
    assert sum(one["completion_tokens"] for one in records.values()) == delivered(fleet) - before_tokens


def test_which_requests_a_version_served_is_one_command_and_the_sums_agree(
    fleet: TemporaryFleet, customer: Customer
) -> None:
    customer.ask("stream", "ledger-asked-for")

    def listed() -> bool:
        lines = fleet.console("usage", "list", "--adapter", "ledger-1", "--all", "--json").stdout.splitlines()
        served = [json.loads(line) for line in lines]
        assert {one["adapter_id"] for one in served} <= {"ledger-1"}
        return "ledger-asked-for" in [one["request_id"] for one in served]

    eventually(listed, "the command to list the request")
    compared = fleet.console("usage", "reconcile", "--tenant", "ledger")
    assert (compared.returncode, compared.stdout.split(",")[0]) == (0, "ledger: OK"), compared


def test_prompts_and_answers_are_kept_nowhere(fleet: TemporaryFleet, pipeline: Pipeline, customer: Customer) -> None:
    """An id that the client chose shows that the search would find them: it stands in logs, database and events."""
    said, named = f"said-{secrets.token_hex(8)} ", f"named-{secrets.token_hex(8)}"
    for kind in KINDS:
        customer.ask(kind, f"{named}-{kind}", said)
    eventually(lambda: f"{named}-refused" in recorded(pipeline), "the requests to be on record")

    def found() -> bool:
        places = traces(fleet.layout.home, named)
        return all(any(kept in place for place in places) for kept in ("logs/gateway", "registry.sqlite", "nats/"))

    eventually(found, "the ids to be in logs, database and events")
    answer = max(customer.answers, key=len)
    assert len(answer.encode()) > 8, "too short to be told from chance"
    for secret in (said.strip(), answer):
        assert traces(fleet.layout.home, secret) == set(), secret
