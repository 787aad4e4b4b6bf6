"""Calls of functions in a model's text, found while it is being written.

A parser is fed with text in any pieces, and the same text gives the same result however it is cut. What may yet become
a call is held back until it is known; what turns out to be none is text, character by character as the model wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec


class Call(msgspec.Struct, frozen=True):
    """`arguments` is JSON text of an object, as the model wrote it."""

    name: str
    arguments: str


Part = str | Call


class CallParser(Protocol):
    def push(self, text: str) -> list[Part]:
        """What is known now, in its order; adjacent texts are one."""

    def flush(self) -> list[Part]:
        """The rest, now that no more text comes."""


class HermesCalls:
    """`<tool_call>{"name": …, "arguments": {…}}</tool_call>`, among any text. White space before a call, and after the
    last one, belongs to it.

    The end of a call counts where it does not stand in a string. A call that ends with the text, or where another one
    begins, needs no end of its own."""

    _OPEN, _CLOSE = "<tool_call>", "</tool_call>"

    def __init__(self) -> None:
        self._held = ""
        """From the white space before a call on, once there is one; else what may be the beginning of that."""
        self._inside: _Quotes | None = None
        self._after_call = False

    def push(self, text: str) -> list[Part]:
        self._held += text
        parts: list[Part] = []
        while self._advance(parts):
            pass
        return _joined(parts)

    def flush(self) -> list[Part]:
        parts: list[Part] = []
        if self._inside is not None:
            self._end(parts, len(self._held), len(self._held))
        rest, self._held = self._held, ""
        if not (self._after_call and not rest.strip()):
            parts.append(rest)
        return _joined(parts)

    def _advance(self, parts: list[Part]) -> bool:
        """Whether there may be more to be found."""
        if self._inside is not None:
            return self._within(parts)
        start = self._held.find(self._OPEN)
        if start >= 0:
            content = self._held[:start].rstrip()
            self._say(parts, content)
            self._held = self._held[len(content) :]
            self._inside = _Quotes((self._CLOSE, self._OPEN), self._held.index(self._OPEN) + len(self._OPEN))
            return True
        settled = len(self._held[: len(self._held) - _overlap(self._held, self._OPEN)].rstrip())
        self._say(parts, self._held[:settled])
        self._held = self._held[settled:]
        return False

    def _within(self, parts: list[Part]) -> bool:
        assert self._inside is not None, "only called within a call"
        found = self._inside.find(self._held)
        if found is None:
            return False
        at, mark = found
        self._end(parts, at, at + len(mark) if mark == self._CLOSE else at)
        return True

    def _end(self, parts: list[Part], body_end: int, end: int) -> None:
        """The call that is held ends here."""
        body = self._held[:body_end].lstrip().removeprefix(self._OPEN)
        call = _call(body, "arguments")
        if call is None:
            self._say(parts, self._held[:end])
        else:
            parts.append(call)
            self._after_call = True
        self._held, self._inside = self._held[end:], None

    def _say(self, parts: list[Part], content: str) -> None:
        if content:
            parts.append(content)
            self._after_call = False


class Llama3Calls:
    """An answer that is nothing but `{"name": …, "parameters": {…}}`, or some of them with `;` between, perhaps after
    `<|python_tag|>`. It is known at its end whether it was."""

    _TAG = "<|python_tag|>"

    def __init__(self) -> None:
        self._held: list[str] = []
        self._may_be: bool | None = None
        """Whether it may consist of calls; None: there is nothing yet but what may come before them."""

    def push(self, text: str) -> list[Part]:
        if self._may_be is False:
            return _joined([text])
        self._held.append(text)
        if self._may_be is None:
            begins = "".join(self._held).lstrip()
            if begins.startswith(("{", self._TAG)):
                self._may_be = True
            elif not self._TAG.startswith(begins):
                self._may_be = False
                return _joined([*self._held])
        return []

    def flush(self) -> list[Part]:
        if self._may_be is False:
            return []
        said = "".join(self._held)
        calls = _calls(said.strip().removeprefix(self._TAG), "parameters")
        return list(calls) if calls else _joined([said])


class ForcedCall:
    """An answer that a schema made a call: of `name`, with nothing but its arguments; or, with "", of what the text
    names. It is known at its end whether it is whole."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._held: list[str] = []

    def push(self, text: str) -> list[Part]:
        self._held.append(text)
        return []

    def flush(self) -> list[Part]:
        said = "".join(self._held)
        call = _arguments(self._name, said) if self._name else _call(said, "arguments")
        return _joined([said]) if call is None else [call]


PARSERS: Mapping[str, Callable[[], CallParser]] = {"hermes": HermesCalls, "llama3_json": Llama3Calls}
"""By what a base's record calls its way to write calls."""


class _Quotes:
    """Looks for marks outside of JSON strings, at each character once."""

    def __init__(self, marks: tuple[str, ...], at: int = 0) -> None:
        self._marks = marks
        self._longest = max(map(len, marks))
        self._at = at
        self._quoted = False

    def find(self, text: str) -> tuple[int, str] | None:
        """Where the next of them is, and its end is passed; None: not before more text comes."""
        while self._at < len(text):
            character = text[self._at]
            if character == "\\" and self._quoted:
                if self._at + 1 == len(text):
                    return None
                self._at += 1
            elif character == '"':
                self._quoted = not self._quoted
            elif not self._quoted:
                rest = text[self._at : self._at + self._longest]
                for mark in self._marks:
                    if rest.startswith(mark):
                        start, self._at = self._at, self._at + len(mark)
                        return start, mark
                    if mark.startswith(rest):
                        return None
            self._at += 1
        return None


def _call(text: str, arguments: str) -> Call | None:
    """The call that this JSON text is, if it is one."""
    try:
        fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        name = msgspec.json.decode(fields["name"], type=str)
        return _arguments(name, bytes(fields[arguments]).decode()) if name else None
    except (msgspec.DecodeError, KeyError, RecursionError):
        return None


def _arguments(name: str, text: str) -> Call | None:
    """Some models write the object as a string that holds it."""
    try:
        value: Any = msgspec.json.decode(text)
        if isinstance(value, str):
            text, value = value, msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return None
    return Call(name, text.strip()) if isinstance(value, dict) else None


def _calls(text: str, arguments: str) -> list[Call]:
    """None, unless all of it is calls."""
    calls: list[Call] = []
    quotes, start, ends = _Quotes((";",)), 0, False
    while not ends:
        found = quotes.find(text)
        ends = found is None
        end = len(text) if found is None else found[0]
        call = _call(text[start:end], arguments)
        if call is None:
            return []
        calls.append(call)
        start = end + 1
    return calls


def _overlap(text: str, mark: str) -> int:
    """How many characters at the end of `text` may be the beginning of `mark`."""
    for length in range(min(len(text), len(mark) - 1), 0, -1):
        if mark.startswith(text[-length:]):
            return length
    return 0


def _joined(parts: list[Part]) -> list[Part]:
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        elif part != "":
            joined.append(part)
    return joined
