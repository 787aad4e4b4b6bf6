"""A plan as a person reads it, and as a script does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from loadtest.capacity.figures import Group
from loadtest.capacity.lines import groups
from loadtest.capacity.plan import Plan


def lines(groups: Sequence[Group], explain: bool) -> str:
    """Titles, and below each its figures in columns; with `explain` the formula of each, worked out."""
    shown = [group for group in groups if group.figures]
    figures = [figure for group in shown for figure in group.figures]
    labels = max(len(figure.label) for figure in figures)
    values = max(len(figure.text) for figure in figures)
    blocks = []
    for group in shown:
        rows = [
            f"  {figure.label.ljust(labels)}  {figure.text.rjust(values)}{f'   = {figure.worked}' * explain}"
            for figure in group.figures
        ]
        blocks.append("\n".join([group.title, *rows]))
    return "\n\n".join(blocks)


def record(plan: Plan) -> dict[str, Any]:
    """The question, and every figure by name with its exact value, its unit and its formula."""
    return {
        "question": msgspec.to_builtins(plan.question),
        "figures": {
            figure.name: {"value": figure.value, "unit": figure.unit, "formula": figure.worked}
            for group in groups(plan)
            for figure in group.figures
        },
    }
