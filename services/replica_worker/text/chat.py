"""The chat template of a model folder, rendered in a sandbox, with customers' text kept text.

A message that spells a control token ("<|im_end|>") must not become one: it could end its own turn and
speak as the system. Every such spelling is rendered as a placeholder and comes out as a piece of its own,
to be encoded as plain characters. Messages that spell none are rendered as they are, so that ordinary
prompts are token for token what the model was trained on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jinja2
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
        except jinja2.TemplateError as error:
            raise ValueError(f"the chat template is not valid: {error}") from error
        self._names = dict(names)
        longest_first = sorted(filter(None, control_tokens), key=len, reverse=True)
        self._shielded = re.compile("|".join(map(re.escape, [*longest_first, _OPEN, _CLOSE])))

    def render(self, messages: Sequence[Mapping[str, str]]) -> list[Piece]:
        """The whole prompt up to where the assistant's answer begins.

        Raises ChatUnusable if the template refuses the messages.
        """
        spelled: list[str] = []
        shielded = [{key: self._shield(value, spelled) for key, value in m.items()} for m in messages]
        try:
            text = self._template.render(messages=shielded, add_generation_prompt=True, **self._names)
        except (jinja2.TemplateError, TypeError, ValueError, KeyError) as error:
            raise ChatUnusable(f"the chat template refuses these messages: {error}") from error
        return _split(text, spelled)

    def _shield(self, value: str, spelled: list[str]) -> str:
        def hide(match: re.Match[str]) -> str:
            spelled.append(match.group())
            return f"{_OPEN}{len(spelled) - 1}{_CLOSE}"

        return self._shielded.sub(hide, value)


def read_template(folder: Path, tokenizer_config: Mapping[str, Any]) -> str:
    """The template's source from chat_template.jinja or tokenizer_config.json.

    Raises ValueError if the folder has none: without it there is no telling how to ask this model.
    """
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text()
    declared = tokenizer_config.get("chat_template")
    if isinstance(declared, list):
        declared = next((one["template"] for one in declared if one.get("name") == "default"), None)
    if not isinstance(declared, str):
        raise ValueError(f"{folder} has no chat template")
    return declared


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


def _to_json(value: Any, indent: int | None = None) -> str:
    """Unlike jinja's own, without HTML escapes: this is a prompt, not a page."""
    return json.dumps(value, ensure_ascii=False, indent=indent)
