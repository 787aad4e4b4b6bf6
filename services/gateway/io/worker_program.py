"""A worker as a process: the same program, told which worker it is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping


async def start_worker(index: int, variable: str, environ: Mapping[str, str]) -> Process:
    """In a session of its own, so that Ctrl-C in a terminal reaches it through its supervisor alone."""
    given = {**environ, variable: str(index)}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.gateway", env=given, stdin=PIPE, start_new_session=True
    )


async def stop_worker(process: Process, patience_s: float) -> None:
    """It finishes its streams; what does not end in time is killed."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(patience_s):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def when_orphaned(call: Callable[[], None]) -> None:
    """`call` once the supervisor is no more, however it ended: its end of the pipe closes with it."""
    loop, pipe = asyncio.get_running_loop(), sys.stdin.fileno()

    def readable() -> None:
        if not os.read(pipe, 1):
            loop.remove_reader(pipe)
            call()

    loop.add_reader(pipe, readable)
