"""From the text of a JSON schema to what it allows.

A schema is a program that a stranger wrote: its size is bounded before it is read, and what it may cost afterwards by
the library's own limits and, where they do not look, by ours.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from services.replica_worker.engine.grammar import Compiled, sentence
from services.replica_worker.engine.schema_costs import excess
from services.replica_worker.engine.shaping import GrammarUnusable
from shared.json_values import json_value

_MOST_BYTES = 64 << 10
_STACK_BYTES = 256 << 20
"""Of address space. References are followed recursively, and _MOST_BYTES hold chains of more than a thousand."""
_KEPT = 64
_LIMITS: dict[str, Any] = {
    "max_grammar_size": 50_000,
    "initial_lexer_fuel": 200_000,  # some milliseconds, once
    "step_lexer_fuel": 50_000,  # the same for every token
    "step_max_items": 20_000,
    "max_items_in_row": 20_000,  # four for each property that may come next; some thousands fit into _MOST_BYTES
    "max_lexer_states": 20_000,
    "verbose_errors": False,
}
_FORM: dict[str, Any] = {
    # A model that is made to write JSON, and does not know how to go on, would write spaces for ever: they have an end,
    # which the library's own pattern for white space does not keep in every version.
    "whitespace_flexible": False,
    "whitespace_pattern": None,
    "item_separator": r"[ \n]{0,16},[ \n]{0,16}",
    "key_separator": r"[ \n]{0,16}:[ \n]{0,16}",
    "coerce_one_of": False,
    "lenient": False,
}
"""Also where the schema asks for another one in the library's own words."""


class Grammars:
    """Schemas over the tokens of one model, the latest of them kept. `eos_token_ids` are those that end an answer."""

    def __init__(self, folder: Path, vocabulary_size: int, eos_token_ids: Sequence[int]) -> None:
        self._folder = folder
        self._vocabulary_size = vocabulary_size
        self._eos_token_ids = list(eos_token_ids)
        self._kept: dict[str, Compiled] = {}
        self._compiling = threading.Lock()
        self._line = ThreadPoolExecutor(1, "grammars")

    async def understand(self, json_schema: str) -> Compiled:
        """One after another, and beside whatever else runs on threads here: a stranger's schemas hold up other
        schemas, and nothing else. Raises GrammarUnusable."""
        if (known := self._kept.get(json_schema)) is not None:
            return known
        return await asyncio.get_running_loop().run_in_executor(self._line, self.compile, json_schema)

    def compile(self, json_schema: str) -> Compiled:
        """Blocking, for milliseconds; on any thread. Raises GrammarUnusable."""
        if (known := self._kept.get(json_schema)) is not None:
            return known
        with self._compiling:
            compiled = self._kept[json_schema] = _on_a_deep_stack(lambda: self._compiled(json_schema))
            if len(self._kept) > _KEPT:
                del self._kept[next(iter(self._kept))]
            return compiled

    def prepare(self) -> None:
        """What the first schema needs. To be called before anything else runs in this process: it takes seconds, in
        which the library lets no other thread go on."""
        with self._compiling:
            _ = self._tokens

    def _compiled(self, json_schema: str) -> Compiled:
        import llguidance

        _check(json_schema)
        if isinstance(self._tokens, str):
            raise GrammarUnusable(self._tokens)
        try:
            grammar = llguidance.LLMatcher.grammar_from_json_schema(json_schema, overrides=_FORM)  # type: ignore[arg-type]
        except ValueError as error:
            raise _unusable(str(error)) from error
        limits = llguidance.LLParserLimits(**_LIMITS)
        first = llguidance.LLMatcher(self._tokens, grammar, log_level=0, limits=limits)
        if not first.is_error():
            first.compute_bitmask()  # the slowest, and the proof that there is one
        if first.is_error():
            raise _unusable(first.get_error())
        return Compiled(json_schema, first)

    @cached_property
    def _tokens(self) -> Any:
        """The library's, or why it has none: to find that out takes as long."""
        import llguidance

        described = json.loads((self._folder / "tokenizer.json").read_text())
        described["padding"] = described["truncation"] = None
        text, size, slices = json.dumps(described), self._vocabulary_size, llguidance.LLTokenizer.json_slices()
        try:
            return llguidance.LLTokenizer(text, n_vocab=size, eos_token=self._eos_token_ids, slices=slices)
        except ValueError as error:
            return f"this model's tokenizer does not go with JSON schemas: {sentence(str(error))}"


def _check(json_schema: str) -> None:
    """Raises GrammarUnusable."""
    if len(json_schema.encode()) > _MOST_BYTES:
        raise GrammarUnusable(f"a JSON schema may have at most {_MOST_BYTES} bytes")
    try:
        schema = json_value(json_schema)
    except (msgspec.DecodeError, RecursionError) as error:
        raise GrammarUnusable(f"the JSON schema is no JSON: {error}") from error
    if not isinstance(schema, dict):
        raise GrammarUnusable("the JSON schema is not an object")
    if (why := excess(schema)) is not None:
        raise GrammarUnusable(why)


def _on_a_deep_stack(work: Callable[[], Compiled]) -> Compiled:
    outcome: list[Compiled | Exception] = []

    def run() -> None:
        try:
            outcome.append(work())
        except Exception as error:
            outcome.append(error)
        except BaseException as error:  # a panic of the library's
            outcome.append(_unusable(str(error)))

    former = threading.stack_size(_STACK_BYTES)
    try:
        thread = threading.Thread(target=run, name="grammar")
        thread.start()
    finally:
        threading.stack_size(former)
    thread.join()
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


def _unusable(reason: str) -> GrammarUnusable:
    return GrammarUnusable(f"the JSON schema cannot be followed: {sentence(reason)}")
