"""The OpenAI body: what it means, and one clear sentence for each thing that may be wrong with it."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.core.openai.chats import parse
from services.gateway.core.refusal import Refusal
from services.gateway.core.wish import Part, Prompt, Wish, estimated_tokens, promised_tokens
from shared.messages.generation import ChatMessage, Sampling

HELLO = [{"role": "user", "content": "hello"}]
FORMAT = {"type": "json_schema"}


def read(**fields: Any) -> Wish | Refusal:
    return parse(msgspec.json.encode({"model": "acme/support", "messages": HELLO, **fields}))


def accepted(**fields: Any) -> Wish:
    request = read(**fields)
    assert isinstance(request, Wish), request
    return request


def refused(**fields: Any) -> Refusal:
    refusal = read(**fields)
    assert isinstance(refusal, Refusal), refusal
    assert refusal.status == 400
    assert refusal.message.endswith(".")
    return refusal


def test_the_least_body_has_openais_defaults() -> None:
    assert accepted() == Wish(
        model="acme/support", prompts=(Prompt(messages=(ChatMessage(role="user", content="hello"),)),), n=1,
        sampling=Sampling(seed=0), seed=None, stream=False, include_usage=False, tools=None, session=None,
    )  # fmt: skip


def test_everything_that_is_served() -> None:
    request = accepted(
        max_tokens=5, temperature=0, top_p=0.5, stop=["a", "b"], seed=7, stream=True, n=16,
        stream_options={"include_usage": True}, presence_penalty=-2, frequency_penalty=1.5,
        logit_bias={"50256": -100, "7": 0.5}, logprobs=True, top_logprobs=3,
    )  # fmt: skip
    assert request.sampling == Sampling(
        seed=0, max_tokens=5, temperature=0.0, top_p=0.5, stop=("a", "b"), presence_penalty=-2.0,
        frequency_penalty=1.5, logit_bias={50256: -100.0, 7: 0.5}, top_logprobs=3,
    )  # fmt: skip
    assert (request.n, request.seed, request.stream, request.include_usage) == (16, 7, True, True)


def test_log_probabilities_are_those_of_the_sampled_tokens_at_least() -> None:
    assert accepted().sampling.top_logprobs is None
    assert accepted(logprobs=True).sampling.top_logprobs == 0
    assert accepted(logprobs=False, top_logprobs=0).sampling.top_logprobs is None
    assert refused(top_logprobs=3).message == "`top_logprobs` is only allowed when `logprobs` is true."


def test_each_answer_has_a_seed_of_its_own() -> None:
    [prompt] = accepted().prompts
    assert accepted(n=2, seed=-1).parts(99) == [
        Part(prompt=prompt, seed=(1 << 63) - 1, repeats=False),
        Part(prompt=prompt, seed=0, repeats=True, first=False),
    ]
    assert [part.seed for part in accepted(n=2).parts(99)] == [99, 100]


def test_null_is_the_same_as_nothing() -> None:
    nothing = dict.fromkeys(
        [
            *("max_tokens", "temperature", "top_p", "n", "stop", "seed", "stream", "stream_options", "tools"),
            *("logprobs", "top_logprobs", "logit_bias", "response_format", "tool_choice", "parallel_tool_calls"),
        ]
    )
    assert accepted(**nothing) == accepted()


def test_unknown_fields_and_names_of_others_are_ignored() -> None:
    assert accepted(cache_salt="theirs", tenant_id="globex", top_k=3, metadata={}, store=True) == accepted()


def test_a_user_names_the_session_and_nothing_else() -> None:
    assert accepted(user="bob") == msgspec.structs.replace(accepted(), session="bob")
    assert accepted(user="").session is accepted(user=None).session is None
    refusal = refused(user=5)
    assert (refusal.param, refusal.code) == ("user", "invalid_type")


def test_parts_are_joined_and_developer_is_system() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    request = accepted(
        messages=[{"role": "developer", "content": parts}, {"role": "user", "content": "c", "name": "x"}]
    )
    assert request.prompts[0].messages == (
        ChatMessage(role="system", content="ab"),
        ChatMessage(role="user", content="c", name="x"),
    )


def test_one_stop_may_be_a_string() -> None:
    assert accepted(stop="END").sampling.stop == ("END",)
    assert accepted(stop="x" * 4_096).sampling.stop == ("x" * 4_096,)
    assert refused(stop="x" * 5_000).message == "`stop` may hold strings of at most 4096 characters, not of 5000."


def test_max_completion_tokens_is_the_newer_name() -> None:
    assert accepted(max_completion_tokens=9, max_tokens=5).sampling.max_tokens == 9


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_c80_max_tokens(name: str) -> None:
    assert accepted(**{name: None}).sampling.max_tokens is None
    assert accepted(**{name: 10**9}).sampling.max_tokens == 10**9
    assert accepted(**{name: 10**30}).sampling.max_tokens == 2**31 - 1
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
    ("fields", "missing"),
    [
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": FORMAT}, "response_format.json_schema"),
        ({"response_format": {**FORMAT, "json_schema": {"schema": {}}}}, "response_format.json_schema.name"),
        ({"tools": [{}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    ],
)
def test_what_is_required_inside_a_parameter(fields: dict[str, Any], missing: str) -> None:
    refusal = refused(**fields)
    assert (refusal.param, refusal.code) == (missing, "missing_required_parameter")
    assert refusal.message == f"`{missing}` is required."


@pytest.mark.parametrize("value", [100.5, None, True, "x"])
def test_a_bias_that_is_wrong_is_named_by_its_token(value: object) -> None:
    refusal = refused(logit_bias={"3": 1, "50256": value})
    said = msgspec.json.encode(value).decode()
    assert refusal.message == f"`logit_bias` of token 50256 must be a number from -100 to 100, not {said}."


@pytest.mark.parametrize("ask_more", [{}, {"n": 2}])
def test_the_field_that_bounds_the_answer_is_known(ask_more: dict[str, Any]) -> None:
    assert accepted(max_tokens=5, **ask_more).asked_by.max_tokens == "max_tokens"
    assert accepted(max_tokens=5, max_completion_tokens=6, **ask_more).asked_by.max_tokens == "max_completion_tokens"


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
        ({"role": "assistant", "content": "x", "tool_calls": [{}]}, "messages[0].tool_calls[0].function"),
        ({"role": "assistant", "tool_calls": 5}, "messages[0].tool_calls"),
        ({"role": "assistant", "tool_calls": []}, "messages[0].content"),
        ({"role": "assistant", "tool_calls": [{"type": "custom"}]}, "messages[0].tool_calls[0].type"),
        (
            {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {}}}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
            "messages[0].tool_calls[0].id",
        ),
        ({"role": "user", "content": "x", "tool_calls": [{}]}, "messages[0].tool_calls"),
        ({"role": "assistant", "function_call": {"name": "f"}}, "messages[0].function_call"),
        ({"role": "tool", "content": "x"}, "messages[0].tool_call_id"),
    ],
)
def test_a_wrong_message_is_named(message: object, param: str) -> None:
    assert refused(messages=[message]).param == param


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1), ("temperature", 2.1), ("temperature", "hot"), ("temperature", True),
        ("top_p", 0), ("top_p", 1.1), ("top_p", []),
        ("n", 17), ("n", 0), ("n", True), ("n", "1"), ("n", 1.0),
        ("presence_penalty", 2.5), ("presence_penalty", "x"), ("frequency_penalty", -3), ("frequency_penalty", True),
        ("logit_bias", []), ("logit_bias", {"x": 1}), ("logit_bias", {"-1": 1}), ("logit_bias", {"1.5": 1}),
        ("logit_bias", {"99999999999": 1}), ("logit_bias", {str(token): 1 for token in range(1025)}),
        ("logit_bias", {"1": 100.5}), ("logit_bias", {"1": None}),
        ("logprobs", 3), ("top_logprobs", 21), ("top_logprobs", -1), ("top_logprobs", True),
        ("tools", {}), ("tool_choice", "any"), ("tool_choice", "required"), ("tool_choice", 5),
        ("response_format", "json"),
        ("stop", 5), ("stop", [5]), ("stop", ""), ("stop", [""]), ("stop", ["a", "b", "c", "d", "e"]),
        ("stop", "x" * 4_097), ("stop", ["a", "x" * (1 << 20)]),
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
        ("functions", [{}]), ("function_call", "auto"), ("modalities", ["audio"]), ("audio", {"voice": "x"}),
        ("web_search_options", {}), ("parallel_tool_calls", False),
    ],
)  # fmt: skip
def test_what_would_change_the_answer_is_refused_by_name(name: str, value: object) -> None:
    refusal = refused(**{name: value})
    assert (refusal.param, refusal.code) == (name, "unsupported_parameter")
    assert name in refusal.message


def test_the_same_with_a_value_that_asks_for_nothing_is_let_through() -> None:
    harmless = {
        "tools": [], "tool_choice": "auto", "logprobs": False, "response_format": {"type": "text"},
        "presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "modalities": ["text"], "functions": [],
        "function_call": "none", "parallel_tool_calls": True,
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
        "tool_choice",
        "logprobs",
        "top_logprobs",
        "logit_bias",
        "response_format",
    ]
)


@given(st.dictionaries(names, json_values))
def test_no_body_breaks_the_parser(fields: dict[str, Any]) -> None:
    outcome = read(**fields)
    assert isinstance(outcome, Wish) or outcome.status == 400


def test_c81_no_depth_breaks_the_parser() -> None:
    """Nor one that can just be decoded, and is then too deep to be written again."""
    limit = sys.getrecursionlimit()
    for depth in range(limit - 200, limit + 10):
        nested = msgspec.Raw(b'{"x":' * depth + b"1" + b"}" * depth)
        tools = [{"type": "function", "function": {"name": name, "parameters": nested}} for name in "ab"]
        for fields in ({"model": nested}, {"tools": tools, "tool_choice": "required"}):
            outcome = read(**fields)
            assert isinstance(outcome, Wish) or outcome.code in ("invalid_type", "invalid_json")


def test_a_promise_is_prompt_and_answer_within_the_context() -> None:
    [prompt] = accepted(messages=[{"role": "user", "content": "x" * 400}]).prompts
    assert promised_tokens(prompt, 50, 2_048) == 150
    assert promised_tokens(prompt, 50, 120) == 120
    assert promised_tokens(prompt, None, 2_048) == 2_048
    assert promised_tokens(prompt, 50, 0) == 150


def test_limits_count_the_prompt_once_and_every_answer() -> None:
    long = [{"role": "user", "content": "x" * 400}]
    assert estimated_tokens(accepted(messages=long, max_tokens=50, n=3), 2_048) == 250
    assert estimated_tokens(accepted(messages=long, n=2), 120) == 140
    assert estimated_tokens(accepted(messages=long, n=2), 0) == 100 + 2 * 1_024
