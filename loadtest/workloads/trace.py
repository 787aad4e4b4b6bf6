"""Recorded requests: a CSV in the format of the Azure LLM inference traces.

TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from loadtest.workloads.shape import Recorded, RecordedLengths

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


class TraceUnreadable(Exception):
    """The file is no trace; says what is wrong and in which line."""


class Trace(msgspec.Struct, frozen=True):
    """`at_s` counts from the first request; in order of time."""

    at_s: tuple[float, ...]
    pairs: tuple[tuple[int, int], ...]

    @property
    def rate_per_s(self) -> float:
        return (len(self.at_s) - 1) / self.at_s[-1]

    def lengths(self) -> RecordedLengths:
        return RecordedLengths(pairs=self.pairs)

    def arrivals(self) -> Recorded:
        gaps = (later - earlier for earlier, later in zip(self.at_s, self.at_s[1:], strict=False))
        return Recorded(gaps=tuple(gap * self.rate_per_s for gap in gaps))


def read_trace(path: Path) -> Trace:
    """Raises TraceUnreadable, in one sentence."""
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            requests = sorted(_requests(csv.DictReader(lines), path))
    except OSError as error:
        raise TraceUnreadable(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise TraceUnreadable(f"{path} cannot be read: {error}.") from error
    if len(requests) < 2 or requests[0][0] == requests[-1][0]:
        raise TraceUnreadable(f"{path} needs requests at two different times at least, to have a rate.")
    began_s = requests[0][0]
    return Trace(tuple(at_s - began_s for at_s, _, _ in requests), tuple((a, b) for _, a, b in requests))


def _requests(rows: csv.DictReader[str], path: Path) -> Iterator[tuple[float, int, int]]:
    missing = [column for column in COLUMNS if column not in (rows.fieldnames or ())]
    if missing:
        raise TraceUnreadable(f"{path} has no column {missing[0]}; a trace's columns are {', '.join(COLUMNS)}.")
    for row in rows:
        try:
            yield _request(row)
        except (TypeError, ValueError) as error:
            raise TraceUnreadable(f"{path}, line {rows.line_num}, is no request: {error}.") from error


def _request(row: Mapping[str, str]) -> tuple[float, int, int]:
    at, prompt, output = (row[column] for column in COLUMNS)
    whole, _, fraction = at.partition(".")  # the traces have seven digits, one more than Python reads
    seconds = datetime.fromisoformat(whole + "+00:00").timestamp()
    return seconds + float(f"0.{fraction or 0}"), int(prompt), int(output)
