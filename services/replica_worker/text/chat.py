"""The chat template of a model folder, rendered in a sandbox, with customers' text kept text.

A message, or a tool, that spells a control token ("<|im_end|>") must not become one: it could end its own turn and
speak as the system. Every such spelling is rendered as a placeholder and comes out as a piece of its own,
to be encoded as plain characters. Messages that spell none are rendered as they are, so that ordinary
prompts are token for token what the model was trained on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jinja2
import jinja2.meta
import msgspec
from jinja2.sandbox import ImmutableSandboxedEnvironment

_OPEN, _CLOSE = "\ue000", "\ue001"
"""Private-use characters around a placeholder's number; where a message has one it is hidden as well."""
_HIDDEN = re.compile(f"{_OPEN}(\\d+){_CLOSE}", re.ASCII)


class ChatUnusable(Exception):
    """These messages cannot be put into this model's chat format; the message says why."""


class Piece(msgspec.Struct, frozen=True):
    """Part of a rendered prompt; control tokens are recognised in it only if `control`."""

    text: str
    control: bool


class ChatTemplate:
    """`control_tokens` are the spellings that only the template itself may use."""

    def __init__(self, source: str, names: Mapping[str, str], control_tokens: Sequence[str]) -> None:
        """Raises ValueError when the template is not valid."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals["raise_exception"] = _raise_from_template
        environment.filters["tojson"] = _to_json
        try:
            self._template = environment.from_string(source)
            self._knows_tools = "tools" in jinja2.meta.find_undeclared_variables(environment.parse(source))
        except jinja2.TemplateError as error:
            raise ValueError(f"the chat template is not valid: {error}") from error
        self._knows_calls = "tool_calls" in source
        self._names = dict(names)
        longest_first = sorted(filter(None, control_tokens), key=len, reverse=True)
        self._shielded = re.compile("|".join(map(re.escape, [*longest_first, _OPEN, _CLOSE])))

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None = None) -> list[Piece]:
        """The whole prompt up to where the assistant's answer begins. Messages may hold `tool_calls` and whatever else
        the template looks for; `tools` are what it is to show the model.

        Raises ChatUnusable if the template refuses the messages, or would leave out the tools or the calls.
        """
        self._check_known(messages, tools)
        spelled: list[str] = []
        try:
            shown = {"messages": self._shielded_in(messages, spelled), "tools": self._shielded_in(tools, spelled)}
            text = self._template.render(**shown, documents=None, add_generation_prompt=True, **self._names)
        except Exception as error:  # a template is a program of its own, and may fail in any way
            raise ChatUnusable(f"the chat template refuses these messages: {_sentence(error)}") from error
        return _split(text, spelled)

    def _check_known(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None) -> None:
        if tools and not self._knows_tools:
            raise ChatUnusable("this model's chat template knows no tools")
        if not self._knows_calls and any("tool_calls" in message for message in messages):
            raise ChatUnusable("this model's chat template knows no calls of tools")

    def _shielded_in(self, value: Any, spelled: list[str]) -> Any:
        """The same, however deep its strings lie."""
        if isinstance(value, str):
            return self._shield(value, spelled)
        if isinstance(value, Mapping):
            return {self._shield(key, spelled): self._shielded_in(each, spelled) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._shielded_in(each, spelled) for each in value]
        return value

    def _shield(self, value: str, spelled: list[str]) -> str:
        def hide(match: re.Match[str]) -> str:
            spelled.append(match.group())
            return f"{_OPEN}{len(spelled) - 1}{_CLOSE}"

        return self._shielded.sub(hide, value)


def _split(text: str, spelled: Sequence[str]) -> list[Piece]:
    """Rendered text alternates with the numbers of what was hidden there."""
    pieces = []
    for index, part in enumerate(_HIDDEN.split(text)):
        piece = Piece(spelled[int(part)], control=False) if index % 2 else Piece(part, control=True)
        if piece.text:
            pieces.append(piece)
    return pieces


def _raise_from_template(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **how: Any) -> str:
    """Unlike jinja's own, without HTML escapes: this is a prompt, not a page."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **how)


def _sentence(error: Exception) -> str:
    """Its words on one line, without the full stop that the whole sentence gets."""
    said = " ".join(str(error).split()) or type(error).__name__
    return said.removesuffix(".")
