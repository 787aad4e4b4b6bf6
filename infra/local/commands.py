"""`lorafleet up` and `down`: in the foreground until Ctrl-C, or detached until `down`."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from infra.local.layout import Layout
from infra.local.preflight import CannotStart, holder
from infra.local.settings import read_settings
from infra.local.up import Run, run_fleet
from infra.models.folder import ModelUnavailable
from shared.runtime.settings import SettingsError

_STOP_TIMEOUT_S = 40.0
_CANNOT = 4


def up(detach: bool) -> int:
    """Start the fleet; returns the exit code. Detached, it returns once a request has been answered."""
    return _detached() if detach else run_here(lambda: None)


def run_here(serving: Callable[[], None]) -> int:
    """Be the supervisor until a signal comes; `serving` is called once a request has been answered."""
    say = _progress()
    try:
        settings = read_settings(os.environ)
        layout = Layout(settings.home.resolve())
        asyncio.run(run_fleet(Run(settings=settings, layout=layout, say=say, serving=serving)))
    except (CannotStart, ModelUnavailable, SettingsError) as error:
        say(f"cannot go on: {error}")
        return _CANNOT
    except OSError as error:
        say(f"cannot go on: {error.strerror or error} ({error.filename or 'no file'}); free space or fix its rights.")
        return _CANNOT
    return 0


def down() -> int:
    """Stop the fleet of this folder and wait until nothing of it is left. Stopping nothing is no error."""
    layout = Layout(read_settings(os.environ).home.resolve())
    pid = holder(layout.lock)
    if pid is None:
        print("no fleet runs here")
        return 0
    os.kill(pid, signal.SIGTERM)
    deadline_s = time.monotonic() + _STOP_TIMEOUT_S
    while holder(layout.lock) is not None:
        if time.monotonic() > deadline_s:
            print(f"supervisor {pid} has not stopped after {_STOP_TIMEOUT_S:.0f} s; see {layout.logs}", file=sys.stderr)
            return _CANNOT
        time.sleep(0.05)
    print("stopped")
    return 0


def _detached() -> int:
    """Run `lorafleet up` in a session of its own and pass its progress on until it serves or ends."""
    read, write = os.pipe()
    argv = [sys.executable, "-m", "infra.local.background", str(write)]
    child = subprocess.Popen(argv, pass_fds=(write,), stdin=subprocess.DEVNULL, start_new_session=True)
    os.close(write)
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
        print(f"[{time.monotonic() - began_s:6.1f} s] {line}", flush=True)

    return say
