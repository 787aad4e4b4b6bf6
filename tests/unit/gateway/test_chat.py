"""The OpenAI body: what it means, and one clear sentence for each thing that may be wrong with it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.core.chat import ChatRequest, parse, promised_tokens
from services.gateway.core.refusal import Refusal
from shared.messages.generation import ChatMessage

HELLO = [{"role": "user", "content": "hello"}]


def read(**fields: Any) -> ChatRequest | Refusal:
    return parse(msgspec.json.encode({"model": "acme/support", "messages": HELLO, **fields}))


def accepted(**fields: Any) -> ChatRequest:
    request = read(**fields)
    assert isinstance(request, ChatRequest), request
    return request


def refused(**fields: Any) -> Refusal:
    refusal = read(**fields)
    assert isinstance(refusal, Refusal), refusal
    assert refusal.status == 400
    assert refusal.message.endswith(".")
    return refusal


def test_the_least_body_has_openais_defaults() -> None:
    assert accepted() == ChatRequest(
        model="acme/support", messages=(ChatMessage(role="user", content="hello"),), max_tokens=None, temperature=1.0,
        top_p=1.0, stop=(), seed=None, stream=False, include_usage=False,
    )  # fmt: skip


def test_everything_that_is_served() -> None:
    request = accepted(
        max_tokens=5, temperature=0, top_p=0.5, stop=["a", "b"], seed=7, stream=True, n=1,
        stream_options={"include_usage": True},
    )  # fmt: skip
    assert (request.max_tokens, request.temperature, request.top_p) == (5, 0.0, 0.5)
    assert (request.stop, request.seed, request.stream, request.include_usage) == (("a", "b"), 7, True, True)


def test_null_is_the_same_as_nothing() -> None:
    nothing = dict.fromkeys(
        ["max_tokens", "temperature", "top_p", "n", "stop", "seed", "stream", "stream_options", "tools", "logprobs"]
    )
    assert accepted(**nothing) == accepted()


def test_unknown_fields_and_names_of_others_are_ignored() -> None:
    assert accepted(cache_salt="theirs", tenant_id="globex", top_k=3, metadata={}, store=True) == accepted()


def test_a_user_names_the_session_and_nothing_else() -> None:
    assert accepted(user="bob") == msgspec.structs.replace(accepted(), session="bob")
    assert accepted(user="").session is accepted(user=5).session is accepted(user=None).session is None


def test_parts_are_joined_and_developer_is_system() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    request = accepted(
        messages=[{"role": "developer", "content": parts}, {"role": "user", "content": "c", "name": "x"}]
    )
    assert request.messages == (
        ChatMessage(role="system", content="ab"),
        ChatMessage(role="user", content="c", name="x"),
    )


def test_one_stop_may_be_a_string() -> None:
    assert accepted(stop="END").stop == ("END",)


def test_max_completion_tokens_is_the_newer_name() -> None:
    assert accepted(max_completion_tokens=9, max_tokens=5).max_tokens == 9


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_c80_max_tokens(name: str) -> None:
    assert accepted(**{name: None}).max_tokens is None
    assert accepted(**{name: 10**9}).max_tokens == 10**9
    assert accepted(**{name: 10**30}).max_tokens == 2**31 - 1
    for wrong in (0, -1, 1.5, "5", True, [], -(10**30)):
        assert refused(**{name: wrong}).param == name


def test_c80_no_messages() -> None:
    refusal = refused(messages=[])
    assert (refusal.param, refusal.code) == ("messages", "empty_array")


@pytest.mark.parametrize(
    "body", [b"{", b"", b"[]", b"5", b'"x"', b"null", b"\xff", b'{"model": 1e999}', b"[" * 100_000]
)
def test_c81_not_a_json_object(body: bytes) -> None:
    refusal = parse(body)
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.code, refusal.heals) == (400, "invalid_json", False)


def test_c81_wrong_types() -> None:
    assert refused(model=5).param == "model"
    assert refused(model="").param == "model"
    assert refused(messages="x").param == "messages"


@pytest.mark.parametrize("missing", ["model", "messages"])
def test_what_is_required(missing: str) -> None:
    body = {"model": "m", "messages": HELLO}
    del body[missing]
    refusal = parse(msgspec.json.encode(body))
    assert isinstance(refusal, Refusal)
    assert (refusal.param, refusal.code) == (missing, "missing_required_parameter")


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("hello", "messages[0]"),
        ({"content": "x"}, "messages[0].role"),
        ({"role": "robot", "content": "x"}, "messages[0].role"),
        ({"role": ["user"], "content": "x"}, "messages[0].role"),
        ({"role": "user"}, "messages[0].content"),
        ({"role": "user", "content": 5}, "messages[0].content"),
        ({"role": "user", "content": ["x"]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": "x", "name": 5}, "messages[0].name"),
        ({"role": "assistant", "content": "x", "tool_calls": [{}]}, "messages[0].tool_calls"),
    ],
)
def test_a_wrong_message_is_named(message: object, param: str) -> None:
    assert refused(messages=[message]).param == param


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1), ("temperature", 2.1), ("temperature", "hot"), ("temperature", True),
        ("top_p", 0), ("top_p", 1.1), ("top_p", []),
        ("n", 2), ("n", 0), ("n", True), ("n", "1"),
        ("stop", 5), ("stop", [5]), ("stop", ""), ("stop", [""]), ("stop", ["a", "b", "c", "d", "e"]),
        ("seed", 1.5), ("seed", "x"), ("seed", 1 << 63), ("seed", True),
        ("stream", "yes"), ("stream", 1), ("stream_options", 5),
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_named(name: str, value: object) -> None:
    assert refused(**{name: value}).param == name


def test_stream_options_belong_to_streams() -> None:
    assert refused(stream_options={"include_usage": True}).param == "stream_options"
    assert refused(stream=True, stream_options={"include_usage": 1}).param == "stream_options.include_usage"
    assert accepted(stream=True, stream_options={}).include_usage is False


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tools", [{"type": "function"}]), ("tool_choice", "required"), ("functions", [{}]), ("function_call", "auto"),
        ("logprobs", True), ("top_logprobs", 3), ("response_format", {"type": "json_object"}),
        ("presence_penalty", 0.5), ("frequency_penalty", -1), ("logit_bias", {"5": 1}), ("modalities", ["audio"]),
        ("audio", {"voice": "x"}), ("web_search_options", {}),
    ],
)  # fmt: skip
def test_what_would_change_the_answer_is_refused_by_name(name: str, value: object) -> None:
    refusal = refused(**{name: value})
    assert (refusal.param, refusal.code) == (name, "unsupported_parameter")
    assert name in refusal.message


def test_the_same_with_a_value_that_asks_for_nothing_is_let_through() -> None:
    harmless = {
        "tools": [], "tool_choice": "auto", "logprobs": False, "response_format": {"type": "text"},
        "presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "modalities": ["text"],
    }  # fmt: skip
    assert accepted(**harmless) == accepted()


def test_a_negative_seed_is_a_seed() -> None:
    assert accepted(seed=-1).seed == (1 << 63) - 1
    assert accepted(seed=0).seed == 0


def test_a_long_value_is_shortened_in_the_sentence() -> None:
    assert len(refused(model=["x" * 10_000]).message) < 200


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(
    [
        "model",
        "messages",
        "max_tokens",
        "temperature",
        "top_p",
        "n",
        "stop",
        "seed",
        "stream",
        "stream_options",
        "tools",
    ]
)


@given(st.dictionaries(names, json_values))
def test_no_body_breaks_the_parser(fields: dict[str, Any]) -> None:
    outcome = read(**fields)
    assert isinstance(outcome, ChatRequest) or outcome.status == 400


def test_a_promise_is_prompt_and_answer_within_the_context() -> None:
    long = accepted(messages=[{"role": "user", "content": "x" * 400}], max_tokens=50)
    assert promised_tokens(long, 2_048) == 150
    assert promised_tokens(long, 120) == 120
    assert promised_tokens(accepted(), 2_048) == 2_048
    assert promised_tokens(long, 0) == 150
