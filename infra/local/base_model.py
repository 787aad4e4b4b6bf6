"""The base model, brought by a program of its own: a signal ends a download or a conversion at once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from infra.local.child import die_with_parent
from infra.local.preflight import CannotStart
from infra.models.fetch import FOUND, REFUSED
from shared.base_model import describe
from shared.messages.desired import BaseModelRecord

FETCH = (sys.executable, "-m", "infra.models.fetch")


async def provide(models: Path, choice: str | None, say: Callable[[str], None], program: Sequence[str] = FETCH) -> Path:
    """The folder that infra.models.fetch found or made; its progress goes to `say`.

    Raises CannotStart with its sentence. Cancelled, it ends the program and what that started; the next call
    clears what was half made.
    """
    fetch = await asyncio.create_subprocess_exec(
        *program, "--out", str(models),
        env={**os.environ, "LORAFLEET_MODEL": choice or ""},
        stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, preexec_fn=die_with_parent,
    )  # fmt: skip
    try:
        last = await _last_line(fetch, say)
        code = await fetch.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(fetch.pid, signal.SIGTERM)
        await fetch.wait()
    if code or not last.startswith(FOUND):
        raise CannotStart(last.removeprefix(REFUSED) or f"{' '.join(program)} ended with exit code {code}.")
    return Path(last.removeprefix(FOUND))


async def described(model: Path, rank_classes: tuple[int, ...]) -> BaseModelRecord:
    """What the fleet must know of it. Raises CannotStart if its config.json is none of a Llama's."""
    try:
        return await asyncio.to_thread(describe, model, model.name, rank_classes)
    except (KeyError, ValueError, TypeError) as error:
        raise CannotStart(
            f"{model / 'config.json'} describes no Llama-family model ({type(error).__name__}: {error}): "
            "set LORAFLEET_MODEL to a folder or hub id of one."
        ) from error


async def _last_line(fetch: Process, say: Callable[[str], None]) -> str:
    last = ""
    assert fetch.stdout is not None
    async for raw in fetch.stdout:
        last = raw.decode(errors="replace").rstrip()
        if not last.startswith((FOUND, REFUSED)):
            say(last)
    return last
