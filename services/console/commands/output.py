"""What a command prints: a table or a sentence for people, JSON for scripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from services.console.core.tables import table


class Output:
    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def rows(self, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
        self._print(json.dumps(list(rows), indent=2) if self._as_json else table(rows, columns))

    def either(self, record: object, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
        """The record for scripts, the rows that it comes to for people."""
        self._print(json.dumps(record, indent=2) if self._as_json else table(rows, columns))

    def record(self, record: Any, sentence: str) -> None:
        self._print(json.dumps(record, indent=2) if self._as_json else sentence)

    def remark(self, text: str) -> None:
        """Not what was asked for, but about it: on stderr, so that a script's `$(…)` takes the answer alone."""
        if not self._as_json:
            sys.stdout.flush()
            sys.stderr.write(text + "\n")

    def failure(self, answer: object) -> None:
        """What the fleet said, for scripts; people read the sentence on stderr."""
        if self._as_json:
            self._print(json.dumps(answer, indent=2))

    def text(self, text: str) -> None:
        """Without a line break: for text that arrives in pieces."""
        sys.stdout.write(text)
        sys.stdout.flush()

    def _print(self, text: str) -> None:
        sys.stdout.write(text + "\n")
