"""`lorafleet plan`: what a fleet takes, before anybody buys a GPU. Asks nothing of a running fleet."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from loadtest.capacity.lines import groups
from loadtest.capacity.model import NotPlannable, read_model
from loadtest.capacity.plan import Plan, plan
from loadtest.capacity.presets import preset
from loadtest.capacity.question import Question
from loadtest.capacity.text import lines, record
from loadtest.capacity.trial import Trial, asked_of, trial
from services.console.commands.output import Output
from services.console.core.outcome import REFUSED, USAGE
from services.console.io.admin import CommandFailed
from services.console.plan_arguments import NUMBERS

_MUST_SAY = ("adapters", "rate_per_s", "prompt_tokens", "output_tokens")


def run(arguments: argparse.Namespace, out: Output) -> None:
    """Raises CommandFailed for numbers that no plan can be made with, and where no size is enough."""
    try:
        tried = trial(arguments.minutes, arguments.seed, arguments.trace)
        found = plan(asked_of(_question(arguments), tried))
        if arguments.simulate:
            _simulate(found, tried, arguments, out)
        else:
            out.record(record(found), _text(found, arguments))
    except NotPlannable as error:
        raise CommandFailed(str(error), USAGE) from error


def _simulate(found: Plan, tried: Trial, arguments: argparse.Namespace, out: Output) -> None:
    from loadtest.capacity import simulation  # only here: the twin is a whole fleet's code

    out.remark(f"{tried.for_s:g} s of traffic in the twin for every size, seed {tried.seed}")
    result = simulation.simulate(found, simulation.in_twin(found, tried), lambda size: out.remark(simulation.row(size)))
    files = [str(path) for path in simulation.draw(found, tried, result, arguments.out)]
    told = {**record(found), "simulation": simulation.record(tried, result), "files": files}
    verdict = simulation.verdict(found, result)
    if result.smallest is None:
        raise CommandFailed(verdict, REFUSED, told)
    out.record(told, "\n".join(["", _text(found, arguments), "", verdict, *files]))


def _text(found: Plan, arguments: argparse.Namespace) -> str:
    return lines(groups(found), arguments.explain)


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
