"""The messages of a chat, each as the chat template will get it."""

from __future__ import annotations

from typing import Any

import msgspec

from services.gateway.core.fields import Defect, mapping, present, shown, text
from shared.messages.generation import ChatMessage

ROLES = ("system", "developer", "user", "assistant", "tool")


def read_messages(value: Any) -> tuple[ChatMessage, ...]:
    """Raises Defect."""
    if not isinstance(value, list):
        raise Defect(f"`messages` must be a list, not {shown(value)}.", "messages", "invalid_type")
    if not value:
        raise Defect("`messages` must hold at least one message.", "messages", "empty_array")
    return tuple(_message(f"messages[{index}]", item) for index, item in enumerate(value))


def _message(at: str, item: Any) -> ChatMessage:
    if not isinstance(item, dict):
        raise Defect(f"`{at}` must be an object with `role` and `content`, not {shown(item)}.", at, "invalid_type")
    role, name = present(item.get("role"), f"{at}.role"), item.get("name")
    if role not in ROLES:
        message = f"`{at}.role` must be one of {', '.join(ROLES)}, not {shown(role)}."
        raise Defect(message, f"{at}.role", "invalid_value")
    if item.get("function_call") is not None:
        raise Defect(f"`{at}.function_call` is not supported.", f"{at}.function_call", "unsupported_parameter")
    if name is not None and not isinstance(name, str):
        raise Defect(f"`{at}.name` must be a string, not {shown(name)}.", f"{at}.name", "invalid_type")
    calls = _calls(f"{at}.tool_calls", role, item.get("tool_calls"))
    silent = bool(calls) and item.get("content") is None
    return ChatMessage(
        # "developer" is OpenAI's newer word for "system"; chat templates know the older one alone.
        role="system" if role == "developer" else role,
        content="" if silent else _content(f"{at}.content", item.get("content")),
        name=name,
        tool_calls=calls,
        tool_call_id=text(item, "tool_call_id", at) if role == "tool" else "",
    )


def _content(at: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(present(value, at), list):
        raise Defect(f"`{at}` must be a string or a list of text parts, not {shown(value)}.", at, "invalid_type")
    return "".join(_part(f"{at}[{index}]", part) for index, part in enumerate(value))


def _part(at: str, part: Any) -> str:
    if not isinstance(part, dict) or part.get("type") != "text":
        kind = part.get("type") if isinstance(part, dict) else part
        raise Defect(f"`{at}` must be a part of type text, not {shown(kind)}.", at, "unsupported_parameter")
    return text(part, "text", at)


def _calls(at: str, role: str, value: Any) -> str:
    """Nothing but what OpenAI defines goes on."""
    if value is None:
        return ""
    if role != "assistant":
        raise Defect(f"`{at}` belongs to messages of the assistant.", at, "invalid_value")
    if not isinstance(value, list):
        raise Defect(f"`{at}` must be a list, not {shown(value)}.", at, "invalid_type")
    calls = [_call(f"{at}[{index}]", item) for index, item in enumerate(value)]
    return msgspec.json.encode(calls).decode() if calls else ""


def _call(at: str, item: Any) -> dict[str, Any]:
    call = mapping(item, at)
    if (kind := call.get("type")) not in (None, "function"):
        message = f"`{at}.type` must be function, not {shown(kind)}."
        raise Defect(message, f"{at}.type", "unsupported_parameter")
    function = mapping(call.get("function"), f"{at}.function")
    named = {name: text(function, name, f"{at}.function") for name in ("name", "arguments")}
    return {"id": text(call, "id", at), "type": "function", "function": named}
