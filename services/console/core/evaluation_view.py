"""An adapter's evaluation as a page of text: the verdict, then every case with the answers side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

_WHO = ("candidate", "base", "predecessor")
_GAP = "  "
_NARROWEST = 12
_MOST_LINES = 6

Told = Mapping[str, Any]


def told(answer: Told, width: int) -> str:
    """Of the answer of `GET …/evaluations`."""
    lines = [f"{answer['adapter_id']} is {answer['status']}: {answer['reason']}"]
    if (override := answer["override"]) is not None:
        lines.append(f"overridden by {override['actor']}: {override['reason'].removeprefix('overridden: ')}")
    reports = answer["reports"]
    if not reports:
        return "\n".join([*lines, "It has not been evaluated yet."])
    lines += [_headline(report) for report in reports]
    for case in reports[0]["cases"]:
        lines += ["", *_case(case, width)]
    return "\n".join(lines)


def _headline(report: Told) -> str:
    verdict = "passed" if report["passed"] else "failed"
    by = f", signed by {report['signed_by']}" if report["signed_by"] else ""
    on = f" on {report['replica_id']}" if report["replica_id"] else ""
    return f"{report['source']}{on}{by}: {verdict}, {report['reason']}"


def _case(case: Told, width: int) -> Iterator[str]:
    yield _short(f"{case['case']}. {case['prompt']}", width)
    yield _short(f"   {case['expected']}", width)
    answers = [(who, case[who]) for who in _WHO if case[who] is not None]
    column = max(_NARROWEST, (width - len(_GAP) * (len(answers) - 1)) // len(answers))
    cells = [_cell(who, answer, column) for who, answer in answers]
    for row in zip_longest(*cells, fillvalue=""):
        yield _GAP.join(text.ljust(column) for text in row).rstrip()


def _cell(who: str, answer: Told, width: int) -> list[str]:
    text = f"({answer['error']})" if answer["error"] else answer["text"]
    wrapped = textwrap.wrap(" ".join(text.split()), width) or ["(empty)"]
    if len(wrapped) > _MOST_LINES:
        wrapped = [*wrapped[: _MOST_LINES - 1], _short(wrapped[_MOST_LINES - 1] + "…", width)]
    return [f"{who} {answer['score']:.2f}", *wrapped]


def _short(text: str, width: int) -> str:
    line = " ".join(text.split()) if not text.startswith(" ") else "   " + " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"
