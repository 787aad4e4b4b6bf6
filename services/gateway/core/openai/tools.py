"""The functions that a model may call, and whether it has to."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from services.gateway.core.fields import Defect, flag, mapping, present, shown, text
from services.gateway.core.wish import Tools

MOST_TOOLS = 128
LARGEST_TOOLS_BYTES = 256 << 10
NAME_PATTERN = "^[a-zA-Z0-9_-]{1,64}$"
_NAME = re.compile(NAME_PATTERN, re.ASCII)
_ANY_ARGUMENTS = {"type": "object"}


class Wanted(NamedTuple):
    """`tools` None: no call is wanted, or there is nothing to call. `schema` is what a forced call must follow."""

    tools: Tools | None
    schema: Any = None


def read_tools(fields: dict[str, Any]) -> Wanted:
    """With "none" the model is told of no function at all: so it calls none. Raises Defect."""
    functions = _functions(fields.get("tools", []))
    choice = _choice(fields.get("tool_choice", "auto"), functions)
    _refuse_lone_calls(fields, choice)
    if not functions or choice == "none":
        return Wanted(None)
    offered = msgspec.json.encode([{"type": "function", "function": each} for each in functions.values()])
    if len(offered) > LARGEST_TOOLS_BYTES:
        message = f"`tools` may have at most {LARGEST_TOOLS_BYTES} bytes, not {len(offered)}."
        raise Defect(message, "tools", "invalid_value")
    if isinstance(choice, str):
        return Wanted(Tools(offered=offered.decode()))
    if len(choice) == 1:
        [name] = choice
        arguments = functions[name].get("parameters", _ANY_ARGUMENTS)
        return Wanted(Tools(offered=offered.decode(), forced=name), arguments)
    return Wanted(Tools(offered=offered.decode(), forced=""), _any_call(functions))


def _functions(value: Any) -> dict[str, dict[str, Any]]:
    """By name."""
    if not isinstance(value, list):
        raise Defect(f"`tools` must be a list, not {shown(value)}.", "tools", "invalid_type")
    if len(value) > MOST_TOOLS:
        raise Defect(f"`tools` may hold at most {MOST_TOOLS} functions, not {len(value)}.", "tools", "invalid_value")
    functions: dict[str, dict[str, Any]] = {}
    for index, item in enumerate(value):
        at = f"tools[{index}]"
        function = _function(at, mapping(item, at))
        if function["name"] in functions:
            message = f"`{at}.function.name` {shown(function['name'])} is there twice."
            raise Defect(message, f"{at}.function.name", "invalid_value")
        functions[function["name"]] = function
    return functions


def _function(at: str, tool: dict[str, Any]) -> dict[str, Any]:
    if (kind := present(tool.get("type"), f"{at}.type")) != "function":
        message = f"`{at}.type` must be function, not {shown(kind)}."
        raise Defect(message, f"{at}.type", "unsupported_parameter")
    at = f"{at}.function"
    given = {name: value for name, value in mapping(tool.get("function"), at).items() if value is not None}
    name = text(given, "name", at)
    if not _NAME.fullmatch(name):
        message = f"`{at}.name` must be 1 to 64 of A-Z a-z 0-9 _ -, not {shown(name)}."
        raise Defect(message, f"{at}.name", "invalid_value")
    function: dict[str, Any] = {"name": name}
    if "description" in given:
        function["description"] = text(given, "description", at)
    if "parameters" in given:
        function["parameters"] = mapping(given["parameters"], f"{at}.parameters")
    return function


def _choice(choice: Any, functions: dict[str, Any]) -> str | list[str]:
    """ "none", "auto", or the names of which one has to be called."""
    if choice in ("none", "auto"):
        return str(choice)
    if choice == "required":
        named = list(functions)
    elif isinstance(choice, dict) and choice.get("type") == "function":
        at = "tool_choice.function"
        named = [text(mapping(choice.get("function"), at), "name", at)]
    else:
        message = f"`tool_choice` must be none, auto, required or a function, not {shown(choice)}."
        raise Defect(message, "tool_choice", "invalid_value")
    if not named or named[0] not in functions:
        message = f"`tool_choice` asks for a function that is not in `tools`: {shown(choice)}."
        raise Defect(message, "tool_choice", "invalid_value")
    return named


def _refuse_lone_calls(fields: dict[str, Any], choice: str | list[str]) -> None:
    """A call that is forced is one in any case."""
    name = "parallel_tool_calls"
    if name in fields and not flag(fields, name, name) and choice == "auto":
        message = f"`{name}` false needs a `tool_choice` other than auto: a model writes as many calls as it likes."
        raise Defect(message, name, "unsupported_parameter")


def _any_call(functions: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A call of any of them. A reference within parameters would point elsewhere from in here."""
    for function in functions.values():
        if b'"$ref"' in msgspec.json.encode(function.get("parameters", {})):
            message = f"`tool_choice` required does not go with `$ref` in the parameters of {shown(function['name'])}."
            raise Defect(message, "tool_choice", "unsupported_parameter")
    return {"anyOf": [_call_of(function) for function in functions.values()]}


def _call_of(function: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "name": {"enum": [function["name"]]},
            "arguments": function.get("parameters", _ANY_ARGUMENTS),
        },
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
