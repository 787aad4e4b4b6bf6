"""Our own description of the door, against what is really read there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from services.gateway.core.openai.bodies import PARSERS
from services.gateway.core.openapi.document import openapi
from services.gateway.core.wish import Wish

DOCUMENT = msgspec.json.decode(openapi())
HELLO = [{"role": "user", "content": "hello"}]
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {}, "strict": True}}

CHAT = {"model": "m", "messages": HELLO}
TEXT = {"model": "m", "prompt": "Once"}

_VALUES: list[Any] = [None, True, False, -3, 0, 1, 2, 16, 17, 21, 0.5, -0.5, "", "x", [], ["x"], [1], {}, {"1": 5}]
_NAMES = {
    "/v1/chat/completions": sorted(DOCUMENT["components"]["schemas"]["ChatRequest"]["properties"]),
    "/v1/completions": sorted(DOCUMENT["components"]["schemas"]["CompletionRequest"]["properties"]),
}
_LEAST = {"/v1/chat/completions": CHAT, "/v1/completions": TEXT}

_PAIRS: list[tuple[str, dict[str, Any]]] = [
    (path, {**_LEAST[path], name: value}) for path in _NAMES for name in _NAMES[path] for value in _VALUES
]
_BODIES: list[tuple[str, dict[str, Any]]] = [
    *(("/v1/chat/completions", {**CHAT, **fields}) for fields in (
        {"stream": True, "stream_options": {"include_usage": True}},
        {"stream": True, "stream_options": {"include_usage": 1}},
        {"logprobs": True, "top_logprobs": 20}, {"logprobs": True, "top_logprobs": 21},
        {"tools": [TOOL]}, {"tools": [TOOL], "tool_choice": "required"}, {"tools": [{}]},
        {"tools": [{"type": "function"}]},
        {"tools": [{"type": "function", "function": {"name": "a b"}}]},
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        *({"tools": [TOOL], "tool_choice": choice, "parallel_tool_calls": False} for choice in (
            "none", "auto", "required", None, {"type": "function", "function": {"name": "f"}}
        )),
        {"response_format": {"type": "text"}}, {"response_format": {"type": "json_object"}},
        {"response_format": SCHEMA},
        {"response_format": {"type": "json_schema"}}, {"response_format": {"type": "yaml"}},
        {"response_format": SCHEMA, "tools": [TOOL]},
        {"response_format": SCHEMA, "tools": [TOOL], "tool_choice": "none"},
        {"logit_bias": {"x": 1}}, {"logit_bias": {"1": 101}}, {"modalities": ["text"]}, {"function_call": "none"},
        {"stop": ["a"] * 5}, {"stop": "x" * 4_097}, {"stop": ["x" * 4_096]},
    )),
    *(("/v1/chat/completions", {**CHAT, "messages": [*HELLO, message]}) for message in (
        {"role": "assistant", "tool_calls": [CALL]}, {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "assistant", "content": None}, {"role": "assistant", "tool_calls": []},
        {"role": "robot", "content": ""},
        {"role": "assistant", "content": "", "tool_calls": []}, {"role": "tool", "content": "", "tool_call_id": "1"},
        {"role": "tool", "content": ""}, {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "user", "content": [{"type": "image_url"}]}, {"role": "user", "content": "x", "tool_calls": [CALL]},
        {"role": "system", "content": "x", "name": None}, {"role": "user", "content": "x", "function_call": {}},
    )),
    *(("/v1/completions", {**TEXT, **fields}) for fields in (
        {"prompt": ["a", "b"]}, {"prompt": [[1], [2]]}, {"prompt": [[]]}, {"prompt": [[1], "a"]}, {"prompt": [-1]},
        {"echo": True, "logprobs": 1}, {"echo": True, "prompt": [1]}, {"echo": True, "prompt": ["a"]}, {"suffix": ""},
        {"suffix": "x"},
    )),
]  # fmt: skip


def described(name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]})


REQUESTS = {path: described(name) for path, name in zip(_NAMES, ("ChatRequest", "CompletionRequest"), strict=True)}


@pytest.mark.parametrize("path", sorted(PARSERS))
def test_what_the_description_allows_is_read_and_nothing_else(path: str) -> None:
    disagree = [
        body
        for where, body in [*_PAIRS, *_BODIES]
        if where == path
        and body.get("best_of") in (None, 1)  # that it must be `n` cannot be said
        and REQUESTS[path].is_valid(body) is not isinstance(PARSERS[path](msgspec.json.encode(body)), Wish)
    ]
    assert not disagree


def test_every_schema_is_one() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_every_parser_has_a_path() -> None:
    assert set(PARSERS) <= set(DOCUMENT["paths"])
