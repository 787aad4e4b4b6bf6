"""`lorafleet plan`: what a fleet takes, before anybody buys a GPU. Asks nothing of a running fleet."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from loadtest.capacity.lines import groups
from loadtest.capacity.model import NotPlannable, read_model
from loadtest.capacity.plan import plan
from loadtest.capacity.presets import preset
from loadtest.capacity.question import Question
from loadtest.capacity.text import lines, record
from services.console.commands.output import Output
from services.console.core.outcome import USAGE
from services.console.io.admin import CommandFailed
from services.console.plan_arguments import NUMBERS

_MUST_SAY = ("adapters", "rate_per_s", "prompt_tokens", "output_tokens")


def run(arguments: argparse.Namespace, out: Output) -> None:
    """Raises CommandFailed for numbers that no plan can be made with."""
    try:
        found = plan(_question(arguments))
    except NotPlannable as error:
        raise CommandFailed(str(error), USAGE) from error
    shown = groups(found)
    out.record(record(found.question, shown), lines(shown, arguments.explain))


def _question(arguments: argparse.Namespace) -> Question:
    """The preset's or the defaults' question, with what the command line says instead."""
    given: dict[str, Any] = {
        field: getattr(arguments, field) * factor
        for _, field, factor, _ in NUMBERS
        if getattr(arguments, field) is not None
    }
    if arguments.targets is not None:
        given["targets"] = tuple(arguments.targets.split(","))
    if arguments.preset is not None:
        return msgspec.structs.replace(preset(arguments.preset), **given)
    missing = [flag for flag, field, _, _ in NUMBERS if field in _MUST_SAY and field not in given]
    if missing:
        raise NotPlannable(f"A plan for a model needs {', '.join(missing)} too.")
    return Question(model=read_model(arguments.model), **given)
