"""Official clients, unmodified, before a whole fleet: the answers and the exceptions that each makes of ours.

`make test` asks OpenAI's Python SDK; `make contract-clients` asks all of them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.clients.place import Place
from tests.clients.roster import ROOT, Client, each_client, hang_up, speaks
from tests.support.pipeline import Pipeline

HELLO = [{"role": "user", "content": "Hello, who are you?"}]
PAGE = ROOT / "docs" / "clients.md"
LARGEST_BODY_BYTES = 8 << 20

pytest_generate_tests = each_client
_hang_up = pytest.fixture(scope="session", autouse=True)(hang_up)


@speaks("page")
def test_the_page_of_clients(client: Client, place: Place) -> None:
    heading = f"\n## {client.name}\n"
    snippet = PAGE.read_text().partition(heading)[2].partition("```")[2].partition("```")[0].partition("\n")[2]
    environ = {"LORAFLEET_URL": place.url, "LORAFLEET_API_KEY": place.key}
    assert client.run(snippet.replace("acme/terse:prod", place.alias), environ) == place.marker + "\n"


# -- answers -------------------------------------------------------------------------------------------


@speaks("chat")
def test_chat(client: Client, place: Place) -> None:
    said = place.ask(client, "chat", messages=HELLO)
    assert (said.text, said.finishes, said.models) == (place.marker, ["stop"], {place.alias})
    assert said.usage["total_tokens"] == said.usage["prompt_tokens"] + said.usage["completion_tokens"]
    assert said.usage["completion_tokens"] > len(place.marker) / 2


@speaks("chat_stream")
def test_chat_streamed(client: Client, place: Place) -> None:
    said = place.ask(client, "chat_stream", messages=HELLO, stream_options={"include_usage": True})
    assert (said.text, said.finishes, said.models) == (place.marker, ["stop"], {place.alias})
    assert len(said.pieces) > 1
    assert said.usage["completion_tokens"] > 0


@speaks("chat_helper")
def test_chat_by_the_stream_helper(client: Client, place: Place) -> None:
    said = place.ask(client, "chat_helper", messages=HELLO)
    assert (said.text, said.finishes, said.models) == (place.marker, ["stop"], {place.alias})


@speaks("models", "model")
def test_models(client: Client, place: Place) -> None:
    listed = {model["id"]: model for model in place.ask(client, "models").answer}
    assert {place.alias, place.base} <= set(listed)
    [retrieved] = place.ask(client, "model").answer
    assert retrieved == listed[place.alias]
    assert (retrieved["object"], retrieved["owned_by"]) == ("model", "acme")


@speaks("chat", "chat_stream")
@pytest.mark.parametrize("verb", ["chat", "chat_stream"])
def test_stop_strings(client: Client, place: Place, verb: str) -> None:
    said = place.ask(client, verb, messages=HELLO, stop=["never", place.marker[3:5]])
    assert (said.text, said.finishes) == (place.marker[:3], ["stop"])


@speaks("chat")
def test_cut_at_max_tokens(client: Client, place: Place) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        said = place.ask(client, "chat", messages=HELLO, **{name: 2})
        assert (said.text, said.finishes) == (place.marker[:2], ["length"])


@speaks("completion", "completion_stream")
@pytest.mark.parametrize("verb", ["completion", "completion_stream"])
def test_completion(client: Client, place: Place, verb: str) -> None:
    said = place.ask(client, verb, prompt="Once upon a time ", max_tokens=32)
    assert said.answer
    assert said.text == place.marker
    if client.is_openai:
        by_ids = place.ask(client, verb, prompt=place.ids("Once upon a time "), max_tokens=4)
        assert (by_ids.text, by_ids.finishes, by_ids.models) == (place.marker[:4], ["length"], {place.alias})


@speaks("chat", "chat_stream", "several")
@pytest.mark.parametrize("verb", ["chat", "chat_stream"])
def test_several_answers(client: Client, place: Place, verb: str) -> None:
    said = place.ask(client, verb, messages=HELLO, n=3)
    assert said.answer
    assert (said.texts, set(said.finishes)) == ([place.marker] * 3, {"stop"})
    if client.is_openai:  # others tell one reason for all
        assert len(said.finishes) == 3


@speaks("chat", "chat_stream")
@pytest.mark.parametrize("verb", ["chat", "chat_stream"])
def test_log_probabilities(client: Client, place: Place, verb: str) -> None:
    said = place.ask(client, verb, messages=HELLO, logprobs=True, top_logprobs=2)
    assert said.text == place.marker
    assert "".join(token["token"] for token in said.logprobs) == place.marker, "and none that ends the answer"
    for token in said.logprobs:
        first, second = token["top_logprobs"]
        assert 0 >= token["logprob"] == first["logprob"] >= second["logprob"]
        assert bytes(token["bytes"]).decode() == token["token"] == first["token"]


@speaks("chat")
def test_bias_and_penalties(client: Client, place: Place) -> None:
    [often], [seldom] = place.ids("Z"), place.ids("Y")
    asked: dict[str, Any] = {"model": place.base, "messages": HELLO, "max_tokens": 6}
    asked["logit_bias"] = {str(often): 100, str(seldom): 97}
    assert place.ask(client, "chat", **asked).text == "Z" * 6
    for penalty in ("frequency_penalty", "presence_penalty"):
        assert set(place.ask(client, "chat", **asked, **{penalty: 2}).text) <= {"Z", "Y"}
    assert "Y" in place.ask(client, "chat", **asked, frequency_penalty=2).text


GRADED = {
    "type": "object",
    "properties": {"good": {"type": "boolean"}, "grade": {"enum": ["A", "B"]}},
    "required": ["good", "grade"],
    "additionalProperties": False,
}


@speaks("chat", "chat_stream")
@pytest.mark.parametrize("verb", ["chat", "chat_stream"])
def test_json_by_a_schema(client: Client, place: Place, verb: str) -> None:
    asked = {"type": "json_schema", "json_schema": {"name": "graded", "schema": GRADED, "strict": True}}
    said = place.ask(
        client,
        verb,
        model=place.base,
        messages=HELLO,
        response_format=asked,
        max_tokens=64,
        logit_bias=place.no_space(),
    )
    assert said.answer
    graded = json.loads(said.text)
    assert (set(graded), type(graded["good"]), graded["grade"] in "AB") == ({"good", "grade"}, bool, True)
    assert said.finishes == ["stop"]


@speaks("chat")
def test_any_json_object(client: Client, place: Place) -> None:
    bias = {**place.no_space(), str(*place.ids("}")): 100}
    asked = {"response_format": {"type": "json_object"}, "max_tokens": 8, "logit_bias": bias}
    said = place.ask(client, "chat", model=place.base, messages=HELLO, **asked)
    assert (said.text, said.finishes) == ("{}", ["stop"])


# -- exceptions ----------------------------------------------------------------------------------------


def told(error: dict[str, Any], client: Client) -> tuple[Any, ...]:
    """Class, status, code, parameter and type; of clients that hand on less, what they do."""
    if client.is_openai:
        assert error["request_id"]
        return error["status_code"], error["code"], error["param"], error["type"]
    return (error["status_code"],)


def expected(client: Client, *values: Any) -> tuple[Any, ...]:
    return values if client.is_openai else values[:1]


@speaks("chat")
def test_wrong_key(client: Client, place: Place) -> None:
    error = client.ask("chat", place.url, "lf-wrong", model=place.alias, messages=HELLO).error
    assert "AuthenticationError" in error["classes"]
    assert told(error, client) == expected(client, 401, "invalid_api_key", None, "invalid_request_error")


@speaks("chat", "chat_stream")
@pytest.mark.parametrize("verb", ["chat", "chat_stream"])
def test_unknown_model(client: Client, place: Place, verb: str) -> None:
    error = place.ask(client, verb, model="acme/nothing:prod", messages=HELLO).error
    assert "NotFoundError" in error["classes"]
    assert told(error, client) == expected(client, 404, "model_not_found", "model", "invalid_request_error")
    assert "acme/nothing:prod" in error["message"]


@speaks("chat", "chat_stream")
@pytest.mark.parametrize("verb", ["chat", "chat_stream"])
def test_bad_request(client: Client, place: Place, verb: str) -> None:
    error = place.ask(client, verb, messages=HELLO, temperature=3).error
    assert "BadRequestError" in error["classes"]
    assert told(error, client)[0] == 400
    assert "`temperature`" in error["message"]


@speaks("chat")
def test_longer_than_the_context(client: Client, place: Place) -> None:
    error = place.ask(client, "chat", messages=[{"role": "user", "content": "long " * 600}]).error
    assert "BadRequestError" in error["classes"]
    assert told(error, client) == expected(client, 400, "context_length_exceeded", "messages", "invalid_request_error")


@speaks("chat")
def test_too_large(client: Client, place: Place) -> None:
    error = place.ask(client, "chat", messages=[{"role": "user", "content": "x" * LARGEST_BODY_BYTES}]).error
    assert "APIError" in error["classes"]
    assert told(error, client) == expected(client, 413, "request_too_large", None, "invalid_request_error")


@pytest.fixture(scope="module")
def hasty(pipeline: Pipeline) -> str:
    """The key of a tenant that may ask once a minute."""
    key = pipeline.key("hasty-clients")
    limits = {"requests_per_min": 1}
    pipeline.admin.patch("/internal/tenants/hasty-clients/limits", json=limits).raise_for_status()
    return key


@speaks("chat")
def test_over_the_limit(client: Client, place: Place, hasty: str) -> None:
    for _ in range(100):  # the limit reaches the gateway in a moment
        said = client.ask("chat", place.url, hasty, model=place.base, messages=HELLO, max_tokens=1)
        if said.raised is not None:
            break
    assert "RateLimitError" in said.error["classes"]
    assert told(said.error, client) == expected(client, 429, "rate_limit_exceeded", None, "requests")
