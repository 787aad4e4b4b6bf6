"""The thread that steps: commands go in under a lock, outcomes come out on the event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

import torch

from services.replica_worker.engine.port import EngineFailed
from services.replica_worker.engine.schedule import Schedule
from services.replica_worker.engine.sequence import Outcome

from .stepper import Stepper

Command = Callable[[Schedule], None]
OnOutcomes = Callable[[Sequence[Outcome]], None]
OnFailure = Callable[[EngineFailed], None]

_log = logging.getLogger(__name__)


class StepThread:
    """Owns a Stepper: nothing else touches it between `start` and the end of `stop`. It ends by `stop` or with
    `on_failure`, never silently."""

    def __init__(self, stepper: Stepper, threads: int, on_outcomes: OnOutcomes, on_failure: OnFailure) -> None:
        self._stepper = stepper
        self._threads = threads
        self._on_outcomes = on_outcomes
        self._on_failure = on_failure
        self._wake = threading.Condition()
        self._commands: deque[Command] = deque()
        self._stopping = False
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="engine-steps", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def post(self, command: Command) -> None:
        """Have `command` applied before the next step. Never blocks for longer than a queue operation."""
        with self._wake:
            self._commands.append(command)
            self._wake.notify()

    def stop(self) -> None:
        """Blocks until the step that is running has ended; no outcome is delivered after it."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        if self._threads:
            torch.set_num_threads(self._threads)
        try:
            with torch.inference_mode():
                while self._next_commands():
                    self._deliver(self._stepper.step())
        except BaseException as error:  # also a panic of a library's, which is no Exception
            _log.exception("the engine gave itself up")
            failure = error if isinstance(error, EngineFailed) else EngineFailed(f"a step broke off: {error}")
            self._loop.call_soon_threadsafe(self._on_failure, failure)

    def _next_commands(self) -> bool:
        """Wait for work and apply what was posted. False: stop."""
        with self._wake:
            while not (self._commands or self._stepper.schedule.busy or self._stopping):
                self._wake.wait()
            if self._stopping:
                return False
            commands, self._commands = self._commands, deque()
        for command in commands:
            command(self._stepper.schedule)
        return True

    def _deliver(self, outcomes: Sequence[Outcome]) -> None:
        if outcomes and not self._stopping:
            self._loop.call_soon_threadsafe(self._on_outcomes, outcomes)
