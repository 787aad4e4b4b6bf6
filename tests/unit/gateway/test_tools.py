"""Which functions a model may or must call, and the schema that an answer follows."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from services.gateway.core.openai.chats import parse
from services.gateway.core.openai.formats import ANY_OBJECT, LARGEST_SCHEMA_BYTES
from services.gateway.core.openai.tools import LARGEST_TOOLS_BYTES
from services.gateway.core.refusal import Refusal
from services.gateway.core.wish import Wish
from shared.messages.generation import ChatMessage

PLACE = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **more}}


WEATHER = tool("weather", description="Of a city.", parameters=PLACE, strict=True)
TIME = tool("time")
SCHEMA = {"type": "json_schema"}


def read(**fields: Any) -> Wish | Refusal:
    return parse(msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": "x"}], **fields}))


def accepted(**fields: Any) -> Wish:
    wish = read(**fields)
    assert isinstance(wish, Wish), wish
    return wish


def refused(**fields: Any) -> Refusal:
    refusal = read(**fields)
    assert isinstance(refusal, Refusal), refusal
    return refusal


def forced(wish: Wish) -> tuple[str | None, Any]:
    assert wish.tools is not None
    return wish.tools.forced, json.loads(wish.sampling.json_schema)


def test_tools_are_offered_as_openai_writes_them() -> None:
    wish = accepted(tools=[WEATHER, TIME])
    assert wish.tools is not None
    offered = json.loads(wish.tools.offered)
    assert offered == [tool("weather", description="Of a city.", parameters=PLACE), TIME]
    assert (wish.tools.forced, wish.sampling.json_schema) == (None, "")
    assert accepted(tools=[WEATHER, TIME], tool_choice="auto", parallel_tool_calls=True) == wish


def test_a_call_that_is_forced_is_one_anyway() -> None:
    for choice in ("required", "none", {"type": "function", "function": {"name": "time"}}):
        forced = accepted(tools=[TIME], tool_choice=choice)
        assert accepted(tools=[TIME], tool_choice=choice, parallel_tool_calls=False) == forced


def test_with_none_the_model_is_told_of_no_function() -> None:
    assert accepted(tools=[WEATHER], tool_choice="none") == accepted(tools=[]) == accepted()


def test_a_named_function_shapes_the_answer() -> None:
    named = accepted(tools=[WEATHER, TIME], tool_choice={"type": "function", "function": {"name": "weather"}})
    assert forced(named) == ("weather", PLACE)
    assert forced(accepted(tools=[TIME], tool_choice="required")) == ("time", {"type": "object"})


def test_one_of_several_shapes_the_answer() -> None:
    name, schema = forced(accepted(tools=[WEATHER, TIME], tool_choice="required"))
    assert name == ""
    shape = Draft202012Validator(schema)
    assert shape.is_valid({"name": "weather", "arguments": {"city": "Köln"}})
    assert shape.is_valid({"name": "time", "arguments": {}})
    assert not shape.is_valid({"name": "weather", "arguments": {}})
    assert not shape.is_valid({"name": "other", "arguments": {}})


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [5]}, "tools[0]"), ({"tools": [{"type": "custom"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"), ({"tools": [tool("a b")]}, "tools[0].function.name"),
        ({"tools": [tool("x" * 65)]}, "tools[0].function.name"), ({"tools": [TIME, TIME]}, "tools[1].function.name"),
        ({"tools": [tool("a", parameters=[])]}, "tools[0].function.parameters"),
        ({"tools": [tool("a", description=5)]}, "tools[0].function.description"),
        ({"tools": [tool(f"f{at}") for at in range(129)]}, "tools"),
        ({"tools": [tool("a", description="x" * LARGEST_TOOLS_BYTES)]}, "tools"),
        ({"tools": [TIME], "tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice"),
        ({"tools": [TIME], "tool_choice": {"type": "function"}}, "tool_choice.function"),
        ({"tools": [TIME], "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "time"}}}, "tool_choice"),
        ({"tools": [tool("a", parameters={"$ref": "#/x"}), TIME], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [TIME], "parallel_tool_calls": False}, "parallel_tool_calls"),
        ({"tools": [TIME], "tool_choice": "none", "parallel_tool_calls": 0}, "parallel_tool_calls"),
        ({"tools": [TIME], "response_format": {"type": "json_object"}}, "response_format"),
        ({"tools": [tool("a", parameters={"x": "y" * LARGEST_SCHEMA_BYTES})], "tool_choice": "required"}, "tools"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": SCHEMA}, "response_format.json_schema"),
        ({"response_format": {**SCHEMA, "json_schema": {"name": "x"}}}, "response_format.json_schema.schema"),
        ({"response_format": {**SCHEMA, "json_schema": {"schema": {}}}}, "response_format.json_schema.name"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    refusal = refused(**fields)
    assert (refusal.status, refusal.param) == (400, param)
    assert refusal.message.endswith(".")


def test_a_format_is_a_schema() -> None:
    schema = {"name": "place", "schema": PLACE}
    assert accepted(response_format={"type": "text"}).sampling.json_schema == ""
    assert accepted(response_format={"type": "json_object"}).sampling.json_schema == ANY_OBJECT
    for strict in ({}, {"strict": True}, {"strict": False}, {"strict": None}):
        wish = accepted(response_format={"type": "json_schema", "json_schema": {**schema, **strict}})
        assert json.loads(wish.sampling.json_schema) == PLACE


def test_a_schema_is_bounded() -> None:
    long = {"name": "x", "schema": {"description": "x" * LARGEST_SCHEMA_BYTES}}
    refusal = refused(response_format={"type": "json_schema", "json_schema": long})
    assert refusal.param == "response_format.json_schema.schema"


def test_calls_and_their_answers_go_back_to_the_model() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "time", "arguments": '{"at": 5}'}}
    wish = accepted(
        messages=[
            {"role": "user", "content": "What time?"},
            {"role": "assistant", "content": None, "tool_calls": [{**call, "index": 0}]},
            {"role": "tool", "content": "noon", "tool_call_id": "call_1"},
        ]
    )
    _, asked, answered = wish.prompts[0].messages
    assert (asked.role, asked.content, json.loads(asked.tool_calls)) == ("assistant", "", [call])
    assert answered == ChatMessage(role="tool", content="noon", tool_call_id="call_1")
    assert wish.prompts[0].tokens > 20, "calls are a part of the prompt"
