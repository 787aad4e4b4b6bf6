"""Bodies that are read by their types mean what they mean when they are read field by field."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.gateway.core.openai import plain_chats
from services.gateway.core.openai.chats import parse, parse_any

HELLO = [{"role": "user", "content": "hello"}]
_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([1 << 31, 1 << 63, -(1 << 63), 1 << 70]),
    st.sampled_from([0.0, 0.5, 1.0, 2.0, 2.5, 1e300]), st.text(max_size=3), st.just([]), st.just({}),
)  # fmt: skip
_ROLES = st.sampled_from(["system", "developer", "user", "assistant", "tool", "", "User"])
_MESSAGES = st.lists(
    st.one_of(
        st.fixed_dictionaries({"role": _ROLES, "content": st.text(max_size=4)}),
        st.dictionaries(st.sampled_from(["role", "content", "name", "tool_calls", "else"]), _VALUES, max_size=4),
    ),
    max_size=3,
)
_OPTIONS = st.dictionaries(st.sampled_from(["include_usage", "else"]), _VALUES, max_size=2)
_NAMES = (
    "model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "temperature", "top_p", "seed", "user",
    "n", "stop", "logprobs", "tools", "unknown",
)  # fmt: skip


@given(
    given_fields=st.dictionaries(st.sampled_from(_NAMES), _VALUES, max_size=5),
    messages=st.one_of(_MESSAGES, _VALUES), options=st.one_of(st.none(), _OPTIONS), streams=st.booleans(),
)  # fmt: skip
@example(given_fields={"max_tokens": 5.0}, messages=HELLO, options=None, streams=True)
@example(given_fields={"seed": -1, "user": ""}, messages=HELLO, options={"include_usage": True}, streams=True)
def test_any_body_means_the_same_either_way(
    given_fields: dict[str, Any], messages: Any, options: Any, streams: bool
) -> None:
    fields = {"model": "acme/support", "messages": messages, "stream": streams, **given_fields}
    if options is not None:
        fields["stream_options"] = options
    body = msgspec.json.encode(fields)
    assert parse(body) == parse_any(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"a/b","model":"c/d","messages":[{"role":"user","content":"x","content":"y"}]}',
        b'{"model":"a/b","messages":[{"role":"user","content":"\\ud83d\\ude00 \\u0000"}],"max_tokens":1}',
        b'{"model":"a/b","messages":[{"role":"user","content":"\\ud83d"}]}',
        b'{"model":"a/b","messages":[{"role":"user","content":"\xff"}]}',
        b'{"model":"a/b","messages":[{"role":"user","content":"x"}],"temperature":-0.0,"top_p":1e-400}',
        b'{"model":"a/b","messages":[{"role":"user","content":"x"}],"max_tokens":1e2}',
        b'{"model":"a/b","messages":[{"role":"user","content":"x"}]} ',
        b'{"model":"a/b","messages":[{"role":"user","content":"x"}]}x',
        b'{"model":"a/b","messages":[{"role":"user","content":"x"}],"stream":true,"stream_options":{"else":1e999}}',
        b'{"model":"a/b","messages":[{"role":"user","content":"x"}],"stream":true,"stream_options":{"else":"\xff"}}',
        b'{"model":"a/b","messages":[{"role":"user","content":"x"}],"stream":true,"stream_options":{"\xff":1}}',
        b"[]",
        b"",
    ],
)
def test_so_do_bodies_that_no_encoder_writes(body: bytes) -> None:
    assert parse(body) == parse_any(body)


def test_what_most_clients_send_is_plain() -> None:
    fields = {
        "model": "acme/support", "messages": [{"role": "system", "content": "Be brief."}, *HELLO], "stream": True,
        "stream_options": {"include_usage": True}, "max_completion_tokens": 250, "temperature": 0.7, "seed": 7,
    }  # fmt: skip
    assert plain_chats.read(msgspec.json.encode(fields)) == parse_any(msgspec.json.encode(fields))
