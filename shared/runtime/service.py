"""The life of a service: parts start in order, one signal drains them in reverse, a second one ends at once."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import uvloop

from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger
from shared.runtime.periodic import Action, Periodic
from shared.runtime.settings import SettingsError

STOP_DEADLINE_S = 30.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_log = get_logger(__name__)


class Part(Protocol):
    """Something that a service runs. A `start` that raises or is cancelled has left nothing running."""

    async def start(self) -> None: ...

    async def stop(self) -> None:
        """Finish what is under way and release everything. Called once, and only after a `start`."""


def periodically(clock: Clock, interval_s: float, action: Action) -> Part:
    """A part that runs an async action at once and every `interval_s` from then on, whatever it raises."""
    return Periodic(clock, interval_s, action)


def run_main(main: Coroutine[Any, Any, None]) -> None:
    """Run a service's main coroutine to its end.

    Settings that are wrong are one line on stderr and exit code 2; any other failure is logged with its
    traceback and is exit code 1.
    """
    try:
        uvloop.run(main)
    except SettingsError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from error
    except Exception as error:
        _log.exception("the service failed", error=error)
        raise SystemExit(1) from error


async def run_until_stopped(
    name: str,
    parts: Sequence[Part],
    *,
    stop_deadline_s: float = STOP_DEADLINE_S,
    stop_asked: asyncio.Event | None = None,
) -> None:
    """Start the parts in order, wait for SIGTERM or SIGINT (or `stop_asked`), stop them in reverse order.

    A part that fails to start ends the service: those before it are stopped and its exception is raised.
    A signal during the start ends the start. Stopping takes `stop_deadline_s` at most; then, or at a second
    signal, what has not stopped is left behind with a log line that names it.
    """
    asked, at_once = stop_asked or asyncio.Event(), asyncio.Event()
    started: list[Part] = []
    with _signals(asked, at_once):
        try:
            if await _unless(asked, _start(parts, started)):
                _log.info("the service runs", name=name)
                await asked.wait()
        finally:
            _log.info("the service stops", name=name)
            await _drain(started, at_once, stop_deadline_s)


@contextmanager
def _signals(asked: asyncio.Event, at_once: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        (at_once if asked.is_set() else asked).set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


async def _start(parts: Sequence[Part], started: list[Part]) -> None:
    for part in parts:
        await part.start()
        started.append(part)


async def _drain(started: list[Part], at_once: asyncio.Event, deadline_s: float) -> None:
    try:
        async with asyncio.timeout(deadline_s):
            if await _unless(at_once, _stop(started)):
                return
            reason = "a second signal"
    except TimeoutError:
        reason = f"the deadline of {deadline_s:g} s"
    _log.error("parts were left behind", reason=reason, parts=[type(part).__name__ for part in started])


async def _stop(started: list[Part]) -> None:
    """Empties the list as it goes, so that what remains in it is what did not stop."""
    while started:
        try:
            await started[-1].stop()
        except Exception as error:
            _log.exception("a part failed to stop", part=type(started[-1]).__name__, error=error)
        started.pop()


async def _unless(event: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Run `work` unless the event comes first; whether it ran to its end. Raises what `work` raises."""
    running, waiting = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        return running.done()
    finally:
        for task in (running, waiting):
            task.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)
