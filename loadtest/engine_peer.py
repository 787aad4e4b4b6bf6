"""Both ends of the line between the benchmark and a process that holds one engine.

Each engine has a process of its own, in an environment of its own, and all of them stay up, so that they can be asked
in turns and a noisy machine is as noisy for one as for the other.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec

from loadtest.engine_cases import Answer, Failed, Measured, Peer, Question, Ready

_ROOT = Path(__file__).parent.parent
_SAID_LINES, _END_S = 5, 20.0


class PeerFailed(Exception):
    """An engine did not start or could not answer; the message ends with what it said last."""


class RunningPeer:
    """One engine in its process. It starts at once and in the background; `ready` waits for it."""

    def __init__(self, argv: list[str], peer: Peer, environ: Mapping[str, str], log: Path) -> None:
        self._log = log
        threads = {name: str(peer.threads) for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS")}
        with log.open("wb") as said:
            self._process = subprocess.Popen(
                [*argv, msgspec.json.encode(peer).decode()],
                cwd=_ROOT,
                env={**os.environ, **threads, **environ},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
            )

    def ready(self) -> str:
        """What it calls itself. Blocks until it has started. Raises PeerFailed."""
        said = self._hear()
        if not isinstance(said, Ready):
            raise PeerFailed(f"expected the engine to be ready, not {said}")
        return said.build

    def ask(self, question: Question) -> Answer:
        """Blocks. Raises PeerFailed; the engine is then of no more use."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(question) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise PeerFailed(self._last_words()) from error
        said = self._hear()
        if not isinstance(said, Measured):
            raise PeerFailed(f"{question} was not answered: {said}")
        return said.values

    def close(self) -> None:
        """End it and wait for its end. Idempotent."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _hear(self) -> Ready | Measured | Failed:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            raise PeerFailed(self._last_words())
        return msgspec.json.decode(line, type=Ready | Measured | Failed)  # type: ignore[arg-type]

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()[-_SAID_LINES:]
        return f"the engine's process ended with {self._process.poll()}: " + " | ".join(lines)


def told() -> Peer:
    """What this process is to hold: its only argument."""
    return msgspec.json.decode(sys.argv[1], type=Peer)


def own_stdout() -> BinaryIO:
    """The line to the benchmark. From now on whatever prints to stdout, as engines like to, prints to stderr."""
    line = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    return line


def serve(line: BinaryIO, build: str, answer: Callable[[Question], Answer]) -> None:
    """Answer every question until the benchmark hangs up."""
    line.write(msgspec.json.encode(Ready(build)) + b"\n")
    for asked in sys.stdin.buffer:
        question = msgspec.json.decode(asked, type=Question)  # type: ignore[arg-type]
        try:
            said: Measured | Failed = Measured(answer(question))
        except Exception as error:
            said = Failed(f"{type(error).__name__}: {error}")
        line.write(msgspec.json.encode(said) + b"\n")
