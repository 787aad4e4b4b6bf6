"""`lorafleet adapters register-all`: thousands of folders, with one line of progress and an outcome for each."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, TextIO

import msgspec

from services.console.commands.bases import chosen_base
from services.console.commands.output import Output
from services.console.core.outcome import REFUSED, UNREACHABLE, USAGE
from services.console.core.progress import Pace, batch_line, duration
from services.console.io.admin import Admin, CommandFailed
from services.console.io.progress import ProgressLine
from shared.pipeline.batch import IN, NOT_REACHED, Batch, BatchPolicy, FolderWish, Result, Wish
from shared.pipeline.connect import Where, connect
from shared.pipeline.door import Patience
from shared.pipeline.folder import Identity
from shared.pipeline.outcome import Refused, UnclearFolder, Unreachable
from shared.pipeline.wishes import UnclearList, in_folders, in_lines

_TOLD = 5
"""So many of those that are not in are told on the terminal; the file has them all."""


def register_all(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    """Register every folder that is not known yet. Raises CommandFailed unless all of them are in."""
    wishes = _wishes(arguments, chosen_base(admin, arguments.base))
    try:
        with arguments.outcomes.open("wb") as outcomes:
            run = _Run(wishes, _Telling(outcomes, len(wishes), sys.stderr))
            counts = asyncio.run(run.through(admin.where, arguments))
    except OSError as error:
        raise CommandFailed(f"{arguments.outcomes} cannot be written: {error.strerror}.", USAGE) from error
    except (Unreachable, Refused) as error:
        raise CommandFailed(str(error), UNREACHABLE if isinstance(error, Unreachable) else REFUSED) from error
    summary = run.telling.summary(counts)
    if counts[IN] < len(wishes):
        sentence = "\n".join([*run.telling.worst, f"{summary}; all outcomes are in {arguments.outcomes}"])
        raise CommandFailed(sentence, UNREACHABLE if counts[NOT_REACHED] else REFUSED, dict(counts))
    out.record(dict(counts), summary)


def _wishes(arguments: argparse.Namespace, base_model_hash: str) -> list[Wish]:
    usual = Identity(tenant_id=arguments.tenant, base_model_hash=base_model_hash)
    listed: Path | None = arguments.listed
    if (listed is None) == (not arguments.folder):
        raise CommandFailed("Give folders, or a list with --from.", USAGE)
    try:
        if listed is not None:
            return in_lines(listed.read_bytes(), listed.parent, usual)
        return in_folders([Path(folder) for folder in arguments.folder], usual)
    except (UnclearFolder, UnclearList) as error:
        raise CommandFailed(str(error), USAGE) from error
    except OSError as error:
        raise CommandFailed(f"{listed} cannot be read: {error.strerror}.", USAGE) from error


class _Telling:
    """Writes an outcome for each, and the line of progress."""

    def __init__(self, outcomes: BinaryIO, total: int, stream: TextIO) -> None:
        self.line = ProgressLine(stream, shutil.get_terminal_size().columns)
        self.worst: list[str] = []
        self._outcomes = outcomes
        self._total = total
        self._counts: Counter[str] = Counter()

    def note(self, result: Result) -> None:
        self._outcomes.write(msgspec.json.encode(result) + b"\n")
        self._counts[result.result] += 1
        if result.result != IN and len(self.worst) < _TOLD:
            self.worst.append(f"{result.source}: {result.result}: {result.reason}")
        self.line.show(lambda: batch_line(self._counts, self._pace()))

    def summary(self, counts: Counter[str]) -> str:
        each = ", ".join(f"{count} {result}" for result, count in counts.items()) or "nothing to register"
        pace = self._pace()
        return f"{each}, in {duration(pace.elapsed_s)} ({pace.rate:.0f}/s)"

    def _pace(self) -> Pace:
        done = sum(self._counts.values())
        return Pace(done=done, total=self._total, before=0, elapsed_s=self.line.elapsed_s)


class _Run:
    def __init__(self, wishes: Sequence[Wish], telling: _Telling) -> None:
        self._wishes = wishes
        self.telling = telling

    async def through(self, where: Where, arguments: argparse.Namespace) -> Counter[str]:
        """Raises Unreachable, Refused if not even the list of what is known can be had."""
        policy = BatchPolicy(at_once=arguments.at_once, outcome_s=arguments.timeout if arguments.wait else None)
        async with connect(where, Patience(give_up_s=arguments.patience)) as pipeline:
            known = {}
            for tenant_id in sorted({_tenant(wish) for wish in self._wishes}):
                known |= await pipeline.known(tenant_id)
            with self.telling.line:
                return await Batch(pipeline, policy, known).run(self._wishes, self.telling.note)


def _tenant(wish: Wish) -> str:
    return wish.identity.tenant_id if isinstance(wish, FolderWish) else wish.announced.tenant_id
