"""`lorafleet up` and `down`: in the foreground until Ctrl-C, or detached until `down`."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from infra.local.layout import Layout
from infra.local.preflight import CannotStart, WrongSetting, holder
from infra.local.settings import read_settings, service_overrides
from infra.local.up import Run, run_fleet
from shared.bus.port import BusUnavailable
from shared.runtime.settings import SettingsError

_STOP_TIMEOUT_S = 70.0
_CANNOT = 4
_WRONG = 2
"""As for a wrong word on the command line."""


class CannotStop(Exception):
    """One sentence: what still runs, and where to look."""


def up(detach: bool) -> int:
    """Start the fleet; returns the exit code. Detached, it returns once a request has been answered."""
    return _detached() if detach else run_here(lambda: None)


def run_here(serving: Callable[[], None]) -> int:
    """Be the supervisor until a signal comes; `serving` is called once a request has been answered."""
    say = _progress()
    try:
        settings = read_settings(os.environ)
    except SettingsError as error:
        say(f"cannot go on: {error}")
        return _WRONG
    try:
        layout = Layout(settings.home.resolve())
        overrides = service_overrides(os.environ)
        asyncio.run(run_fleet(Run(settings=settings, layout=layout, overrides=overrides, say=say, serving=serving)))
    except (CannotStart, BusUnavailable) as error:
        say(f"cannot go on: {error}")
        return _WRONG if isinstance(error, WrongSetting) else _CANNOT
    except OSError as error:
        where = error.filename or settings.home.resolve()
        say(f"cannot go on: {error.strerror or error} ({where}): free some space, or set LORAFLEET_HOME elsewhere.")
        return _CANNOT
    return 0


def down() -> int:
    """Stop the fleet of this folder and wait until nothing of it is left. Stopping nothing is no error."""
    try:
        print("stopped" if _stopped(Layout(read_settings(os.environ).home.resolve())) else "no fleet runs here")
    except (CannotStop, SettingsError, OSError) as error:
        print(f"cannot stop the fleet: {error}", file=sys.stderr)
        return _WRONG if isinstance(error, SettingsError) else _CANNOT
    return 0


def _stopped(layout: Layout) -> bool:
    """Whether there was a fleet to stop. Raises CannotStop if it is there still."""
    pid = holder(layout.lock)
    if pid is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline_s = time.monotonic() + _STOP_TIMEOUT_S
    while holder(layout.lock) is not None:
        if time.monotonic() > deadline_s:
            raise CannotStop(f"supervisor {pid} still runs after {_STOP_TIMEOUT_S:.0f} s; see {layout.logs}")
        time.sleep(0.05)
    return True


def _detached() -> int:
    """Run `lorafleet up` in a session of its own and pass its progress on until it serves or ends.

    Ctrl-C while it starts is passed on too, and its last lines still come."""
    read, write = os.pipe()
    argv = [sys.executable, "-m", "infra.local.background", str(write)]
    child = subprocess.Popen(argv, pass_fds=(write,), stdin=subprocess.DEVNULL, start_new_session=True)
    os.close(write)
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: child.terminate())
    with os.fdopen(read) as progress:
        for line in progress:
            print(line, end="", flush=True)
    code = child.poll() if child.poll() is not None else _settle(child)
    return 0 if code is None else (code or _CANNOT)


def _settle(child: subprocess.Popen[bytes]) -> int | None:
    """The pipe is closed: either the fleet serves (None), or its process is just ending."""
    try:
        return child.wait(timeout=1.0)
    except subprocess.TimeoutExpired:
        return None


def _progress() -> Callable[[str], None]:
    began_s = time.monotonic()

    def say(line: str) -> None:
        with suppress(BrokenPipeError):  # nobody reads any more; the fleet goes on, and ends in order
            print(f"[{time.monotonic() - began_s:6.1f} s] {line}", flush=True)

    return say
