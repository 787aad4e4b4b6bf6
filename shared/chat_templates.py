"""The chat templates of a model folder: where they stand, and how they have calls of tools written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

TOOL_PARSERS = ("hermes", "llama3_json")
"""Ways of writing a call that a gateway can read."""
TOOL_TEMPLATE = Path("additional_chat_templates", "tool_use.jinja")
"""Where a folder has the template for requests with tools."""


class Templates(msgspec.Struct, frozen=True, kw_only=True):
    """Sources. `tool_use` is for requests with tools, where the folder has one of its own for them."""

    default: str
    tool_use: str | None = None


def read_templates(folder: Path) -> Templates | None:
    """From chat_template.jinja, beside it, or from tokenizer_config.json; None if the folder has none.

    Raises ValueError naming tokenizer_config.json if that is not a JSON object.
    """
    declared = read_tokenizer_config(folder).get("chat_template")
    named = {"default": declared} if isinstance(declared, str) else _by_name(declared)
    for name, path in (
        ("default", folder / "chat_template.jinja"),
        ("tool_use", folder / TOOL_TEMPLATE),
    ):
        if path.is_file():
            named[name] = path.read_text()
    return Templates(default=named["default"], tool_use=named.get("tool_use")) if "default" in named else None


def read_tokenizer_config(folder: Path) -> dict[str, Any]:
    """{} where there is no such file. Raises ValueError naming it if it is not a JSON object."""
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a JSON object")
    return content


def tool_parser_of(template: str) -> str:
    """One of TOOL_PARSERS, by the words in which the template shows the model how a call is written; "" for any other
    form, and for none."""
    if "<tool_call>" in template:
        others = ("<function=", "<arg_key>")  # the same frame around something that is not JSON
        return "" if any(mark in template for mark in others) else "hermes"
    plain = template.replace("\\", "")
    return "llama3_json" if '"parameters":' in plain and "ipython" in plain else ""


def _by_name(declared: Any) -> dict[str, str]:
    """Older folders list several templates."""
    entries = declared if isinstance(declared, list) else []
    return {str(one["name"]): one["template"] for one in entries if isinstance(one.get("template"), str)}
