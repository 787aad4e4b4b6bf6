"""JSON schemas as what they allow to come next, token by token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
_SENTENCE_CHARACTERS = 300


class GrammarLost(Exception):
    """The answer cannot go on under its schema; the message says why in one sentence."""


class Matcher:
    """Where one answer stands in its schema. Not thread-safe."""

    def __init__(self, matcher: Any, produced: Sequence[int]) -> None:
        """Raises GrammarLost if what was produced before does not follow the schema."""
        self._matcher = matcher
        if produced and not _asked(matcher.consume_tokens, list(produced)):
            raise GrammarLost("what was produced so far does not follow the JSON schema")

    @property
    def accepting(self) -> bool:
        """The answer may end here."""
        return bool(_asked(self._matcher.is_accepting))

    def allowed(self) -> bytes:
        """A bit for each token, the lowest first. A token that ends the answer is allowed only where the JSON may end.
        Raises GrammarLost if the schema has become too complex."""
        mask: bytes = _asked(self._matcher.compute_bitmask)
        if self._matcher.is_error():
            raise _lost(self._matcher.get_error())
        return mask

    def take(self, token_id: int) -> None:
        """Raises GrammarLost for a token that is not allowed, as every token is where none is allowed."""
        if not _asked(self._matcher.consume_token, token_id):
            raise _lost(self._matcher.get_error())


class Compiled:
    """A schema, for any number of answers. `begin` may be called on any thread."""

    def __init__(self, json_schema: str, first: Any) -> None:
        self._json_schema = json_schema
        self._first = first

    @property
    def json_schema(self) -> str:
        return self._json_schema

    def begin(self, produced: Sequence[int]) -> Matcher:
        """For an answer that holds these tokens already. Raises GrammarLost if they do not follow the schema."""
        return Matcher(_asked(self._first.deep_copy), produced)

    def completed_by(self, answer: Sequence[int]) -> bool:
        """Whether these tokens, without the one that ended them, are JSON of the schema."""
        try:
            return self.begin(answer).accepting
        except GrammarLost:
            return False


def sentence(reason: str) -> str:
    """The library's words on one line, without the full stop that the whole sentence gets."""
    line = " ".join(reason.replace("<non-verbose/>", "").split())
    return line[:_SENTENCE_CHARACTERS].removesuffix(".")


def _asked(ask: Callable[..., T], *arguments: Any) -> T:
    """Whatever the library raises ends this answer and no other; a panic of its is no Exception."""
    try:
        return ask(*arguments)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise _lost(str(error)) from error


def _lost(reason: str) -> GrammarLost:
    return GrammarLost(f"the JSON schema cannot be followed any further: {sentence(reason)}")
