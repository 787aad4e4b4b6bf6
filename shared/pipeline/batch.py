"""Thousands of registrations, a number of them at a time; what the registry knows already is passed over quickly."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from shared.messages.adapters import AdapterRegistered, Defect
from shared.pipeline.client import Pipeline
from shared.pipeline.folder import WEIGHTS, Identity, announcement, read_folder
from shared.pipeline.known import Known
from shared.pipeline.outcome import Failed, Outcome, OutcomeUnknown, Refused, Rejected, UnclearFolder, Unreachable

IN, REJECTED, FAILED, NOT_REACHED = "in", "rejected", "failed", "not reached"


class FolderWish(msgspec.Struct, frozen=True, kw_only=True):
    """A PEFT folder, to be sent."""

    folder: Path
    identity: Identity

    @property
    def source(self) -> str:
        return str(self.folder)


class AnnouncedWish(msgspec.Struct, frozen=True, kw_only=True):
    """An announcement of weights that the registry can read by itself."""

    announced: AdapterRegistered

    @property
    def source(self) -> str:
        return self.announced.adapter_id


Wish = FolderWish | AnnouncedWish


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one wish: IN (known or new), REJECTED with every defect, FAILED for good, or NOT_REACHED: the
    next run takes it up."""

    source: str
    result: str
    adapter_id: str = ""
    status: str = ""
    reason: str = ""
    defects: tuple[Defect, ...] = ()


OnResult = Callable[[Result], None]


class BatchPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`outcome_s` None: an adapter is in once it is verified; else it must become active within so long."""

    at_once: int
    outcome_s: float | None = None


class Batch:
    """One run over many wishes. When the registry has been away for longer than the pipeline is patient, the rest
    is not tried."""

    def __init__(self, pipeline: Pipeline, policy: BatchPolicy, known: Mapping[str, Known]) -> None:
        self._pipeline = pipeline
        self._policy = policy
        self._known = known
        self._away = ""

    async def run(self, wishes: Iterable[Wish], on_result: OnResult) -> Counter[str]:
        """How many wishes came to which result; `on_result` hears of each, in no order."""
        left, counts = iter(wishes), Counter[str]()

        def note(result: Result) -> None:
            counts[result.result] += 1
            on_result(result)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._policy.at_once):
                tasks.create_task(self._work_off(left, note))
        return counts

    async def _work_off(self, left: Iterator[Wish], note: OnResult) -> None:
        for wish in left:
            note(await self._settle(wish))

    async def _settle(self, wish: Wish) -> Result:
        result = Result(source=wish.source, result=NOT_REACHED)
        if self._away:
            return msgspec.structs.replace(result, reason=self._away)
        try:
            announced = await self._announced(wish)
            result = msgspec.structs.replace(result, adapter_id=announced.adapter_id)
            return told(result, await self._registered(wish, announced))
        except Unreachable as error:
            self._away = str(error)
            return msgspec.structs.replace(result, reason=str(error))
        except OutcomeUnknown as error:
            return msgspec.structs.replace(result, status=error.status, reason=str(error))
        except (Refused, UnclearFolder, OSError) as error:
            return msgspec.structs.replace(result, result=REJECTED, reason=str(error))

    async def _announced(self, wish: Wish) -> AdapterRegistered:
        if isinstance(wish, AnnouncedWish):
            return wish.announced
        folder = await asyncio.to_thread(read_folder, wish.folder)
        return announcement(folder, wish.identity, "")

    async def _registered(self, wish: Wish, announced: AdapterRegistered) -> Known | Outcome:
        known = self._known.get(announced.adapter_id)
        if known is None or known.status == "rejected" or not known.is_of(announced):
            if isinstance(wish, FolderWish):
                uri = await self._pipeline.upload(wish.folder / WEIGHTS, announced.checksum)
                announced = msgspec.structs.replace(announced, weights_uri=uri)
            known = None
        if known is not None and (known.outcome or self._policy.outcome_s is None):
            return known.outcome or known
        if self._policy.outcome_s is None:
            return await self._pipeline.announce(announced)
        return await self._pipeline.register(announced, timeout_s=self._policy.outcome_s)


def told(result: Result, became: Known | Outcome) -> Result:
    """The result with what became of its adapter."""
    if isinstance(became, Rejected):
        return msgspec.structs.replace(result, result=REJECTED, reason=str(became), defects=became.defects)
    if isinstance(became, Failed):
        return msgspec.structs.replace(result, result=FAILED, reason=became.reason)
    status = became.status if isinstance(became, Known) else "active"
    return msgspec.structs.replace(result, result=IN, status=status)
