"""One child process: started, watched, ended. A child never outlives its supervisor."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from infra.local.last_words import sentence

_PR_SET_PDEATHSIG = 1
_LAST_BYTES = 1 << 16
"""Of a log, which may have grown for weeks: more than its last traceback."""
_LIBC = ctypes.CDLL(None, use_errno=True)


class Child:
    """A process in a session of its own, so that Ctrl-C reaches only the supervisor, which then ends its
    children in order. Its output goes to `log`, appended."""

    def __init__(self, name: str, argv: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        self._argv = list(argv)
        self._env = dict(env)
        self._process: subprocess.Popen[bytes] | None = None
        self._log_begins_at_bytes = 0
        self.started_at_s = 0.0

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def start(self) -> None:
        """Raises OSError if the program cannot be run."""
        self.started_at_s = time.monotonic()
        with self.log.open("ab") as output:
            self._log_begins_at_bytes = output.tell()
            self._process = subprocess.Popen(
                self._argv,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=die_with_parent,
            )

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll() if self._process else None

    async def stop(self, grace_s: float) -> None:
        """Ask it to end, then insist. It is gone when this returns."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            await asyncio.wait_for(asyncio.to_thread(self._process.wait), grace_s)
        except TimeoutError:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    def last_words(self) -> str:
        """The sentence in its log that reports its death; never one of an earlier life. "" if it said nothing."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(self._log_begins_at_bytes, log.seek(0, os.SEEK_END) - _LAST_BYTES))
                return sentence(log.read().decode(errors="replace"))
        except OSError:
            return ""


def die_with_parent() -> None:
    """In a new process: lead a session of its own, and end when whoever started it is gone."""
    os.setsid()
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The supervisor's environment without any LORAFLEET_ variable: each child gets exactly its own."""
    kept = {name: value for name, value in environ.items() if not name.startswith("LORAFLEET_")}
    return {**kept, "PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
