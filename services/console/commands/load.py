"""`lorafleet load`: an open loop of requests on a fleet, and what its clients see."""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from loadtest.driver.asking import Target
from loadtest.driver.checking import WRONG, Markers
from loadtest.driver.figures import summary
from loadtest.driver.picture import draw_run, draw_sweep
from loadtest.driver.planned import planned
from loadtest.driver.running import Driver
from loadtest.driver.seen import Collected
from loadtest.driver.sweep import Figures, Objective, Step, Sweep, sweep
from loadtest.driver.text import lines, row, sweep_lines
from services.console.commands.load_question import Load, question
from services.console.commands.output import Output
from services.console.core.outcome import INTERRUPTED, OK, REFUSED, USAGE
from services.console.io.admin import CommandFailed

_FILES = 64
"""That are open besides connections."""


def run(arguments: argparse.Namespace, target: Target, out: Output) -> int:
    """The exit code. Raises CommandFailed for what cannot be sent, or not to this place."""
    load = question(arguments, target)
    _make_room(load.limits.most_streams + _FILES)
    loader = Loader(load)
    if arguments.sweep is None:
        return uvloop.run(_once(arguments, loader, out))
    return uvloop.run(_sweep(arguments, loader, out))


class Loader:
    """One run after the other, until a Ctrl-C ends the one that is under way."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self.interrupted = False

    async def run(self, rate_per_s: float) -> tuple[Collected, dict[str, Any]]:
        """What was seen, and its figures."""
        load = self._load
        shape = msgspec.structs.replace(load.shape, rate_per_s=rate_per_s)
        markers = Markers(load.markers) if load.markers else None
        driver = Driver(load.target, load.limits, load.wording, markers.judge if markers else None)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt, driver.stop)
        try:
            run = await driver.run(planned(shape, load.aliases, load.most))
        finally:
            loop.remove_signal_handler(signal.SIGINT)  # a loop that closes leaves one that does nothing
        return run, summary(run, msgspec.structs.replace(load.asked, request_rate=rate_per_s))

    @property
    def conditions(self) -> dict[str, str]:
        shape = self._load.shape
        return {
            "aliases": f"{len(self._load.aliases):,}",
            "requests/s": f"{shape.rate_per_s:g}",
            "seconds": f"{shape.for_s:g}",
            "seed": str(shape.seed),
        }

    def _interrupt(self, stop: Callable[[], None]) -> None:
        self.interrupted = True
        stop()


async def _once(arguments: argparse.Namespace, loader: Loader, out: Output) -> int:
    run, figures = await loader.run(arguments.rate)
    if not (run.seen or run.warm_up or loader.interrupted):
        sentence = f"Nothing was sent: in {loader.conditions['seconds']} s no request was due. Raise --rate or --for."
        raise CommandFailed(sentence, USAGE, figures)
    files = [*_written(arguments.out, "load", figures)]
    if arguments.out is not None and run.seen:
        files += draw_run(run, figures, loader.conditions, arguments.out, arguments.objective)
    out.record(figures, "\n".join([lines(figures), *map(str, files)]))
    return _code(loader, [figures])


async def _sweep(arguments: argparse.Namespace, loader: Loader, out: Output) -> int:
    async def attempt(rate_per_s: float) -> Figures | None:
        _, figures = await loader.run(rate_per_s)
        return None if loader.interrupted else figures

    def tell(step: Step) -> None:
        out.remark(row(step.figures, step.misses))

    wanted = Sweep(rate_per_s=arguments.rate, factor=arguments.sweep, most_steps=arguments.most_steps)
    swept = await sweep(wanted, Objective(p95_ttft_ms=arguments.objective), attempt, tell)
    told = {**msgspec.to_builtins(swept), "holds_per_s": swept.holds_per_s, "verdict": swept.verdict}
    files = [*_written(arguments.out, "sweep", told)]
    if arguments.out is not None and swept.steps:
        files += draw_sweep(swept, loader.conditions, arguments.out, arguments.objective)
    out.record(told, "\n".join([sweep_lines(swept), *map(str, files)]))
    failed = swept.holds_per_s is None and not loader.interrupted
    return REFUSED if failed else _code(loader, [])


def _written(folder: Path | None, name: str, told: dict[str, Any]) -> tuple[Path, ...]:
    if folder is None:
        return ()
    path = folder / f"{name}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"{path} cannot be written: {error.strerror}.", USAGE, told) from error
    return (path,)


def _code(loader: Loader, all_figures: list[dict[str, Any]]) -> int:
    if loader.interrupted:
        return INTERRUPTED
    wrong = (figures["failed"] or any(figures["contents"].get(kind) for kind in WRONG) for figures in all_figures)
    return REFUSED if any(wrong) else OK


def _make_room(files: int) -> None:
    """For a connection each. Raises CommandFailed where this process may not have so many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= files:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    except ValueError as error:
        sentence = f"{files} open files are more than the {hard} that are allowed here: lower --most-streams."
        raise CommandFailed(sentence, USAGE) from error
