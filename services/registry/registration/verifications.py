"""From an announcement that is known to a verified or rejected adapter: reads its file, checks it and stores it."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from services.registry.core import records, turns
from services.registry.core.defects import defect
from services.registry.core.files.description import Surroundings, check_description
from services.registry.core.files.terms import read_terms
from services.registry.core.files.verify import FileFacts, Limits, verify
from services.registry.core.records import Content
from services.registry.io.database import Database
from services.registry.io.meters import Meters
from services.registry.io.passing import Wanted
from services.registry.io.weights import WeightsSources
from services.registry.registration.findings import Finding, Findings
from services.registry.registration.outcomes import Outcome, RegistrationPolicy, as_known
from shared.messages.adapters import AdapterRegistered, Defect
from shared.runtime.clock import Clock
from shared.store.port import DigestMismatch, ObjectMissing, weights_key


class Verifications:
    """One at a time of each announcement: whoever asks for one that is under way waits for the same outcome."""

    def __init__(
        self, database: Database, sources: WeightsSources, clock: Clock, policy: RegistrationPolicy, meters: Meters
    ) -> None:
        self._findings = Findings(database, clock, policy, meters)
        self._changes = database.changes
        self._sources = sources
        self._limits = Limits(largest_file_bytes=policy.largest_file_bytes)
        self._running: dict[bytes, asyncio.Task[Outcome]] = {}

    async def verify(self, announced: AdapterRegistered, around: Surroundings, *, told: bool = False) -> Outcome:
        """Of an announcement that is kept as registered. Unless the bus was `told` of it by an event, it is once
        there is no defect: pipelines and audit then read one stream, whichever way adapters came in.

        Raises StoreUnavailable, SourceUnavailable, DatabaseUnavailable: it is still registered then, and those who
        follow what is left take it up.
        """
        what = _what(announced)
        if (running := self._running.get(what)) is not None:
            return as_known(await asyncio.shield(running))
        task = asyncio.create_task(self._run(announced, around, told))
        self._running[what] = task
        task.add_done_callback(lambda _: self._running.pop(what))
        return await asyncio.shield(task)

    async def verify_unkept(self, announced: AdapterRegistered, around: Surroundings) -> Outcome:
        """Of one that cannot be kept under its id: it has defects, and this finds all of them."""
        checked = await self._check_and_store(announced, around)
        if isinstance(checked, Content):
            raise ValueError(f"{announced.adapter_id} has no defect and was not kept")
        return await self._findings.refuse(announced, checked)

    async def start(self) -> None:
        """Whatever is to be verified comes through `verify`."""

    async def stop(self) -> None:
        """What is under way is left: the next start takes it up again."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._findings.stop()

    async def _run(self, announced: AdapterRegistered, around: Surroundings, told: bool) -> Outcome:
        try:
            found = await self._check_and_store(announced, around)
            return await self._findings.record(Finding(announced=announced, found=found, told=told))
        except Exception:
            self._changes.tell_left(turns.entrant(announced))
            raise

    async def _check_and_store(
        self, announced: AdapterRegistered, around: Surroundings
    ) -> Content | tuple[Defect, ...]:
        """The content of its file, which is then in the store, or its defects."""
        weights = await self._sources.open(announced.weights_uri)
        if isinstance(weights, Defect):
            return verify(announced, around, weights, self._limits)
        try:
            return await weights.take(self._wanted(announced, around))
        except (DigestMismatch, ObjectMissing):
            message = "The weights file changed while it was being read."
            return (defect("weights_changed", message, "weights_uri", found="other bytes", allowed="one file"),)

    def _wanted(self, announced: AdapterRegistered, around: Surroundings) -> Wanted:
        return Wanted(
            digest=announced.checksum,
            largest_file_bytes=self._limits.largest_file_bytes,
            judge=partial(_judged, announced, around, self._limits),
            hopeless=bool(check_description(announced, around) or read_terms(announced).defects),
        )


def _what(announced: AdapterRegistered) -> bytes:
    """The same for what is the same announcement, wherever the file lay. An id alone does not tell: a corrected one
    comes as soon as another registry has rejected what is still being read here."""
    return msgspec.json.encode(msgspec.structs.replace(announced, weights_uri=""), order="sorted")


def _judged(
    announced: AdapterRegistered, around: Surroundings, limits: Limits, file: FileFacts
) -> Content | tuple[Defect, ...]:
    """Matching customers' expressions takes up to a second: not for the event loop."""
    if defects := verify(announced, around, file, limits):
        return defects
    return records.content(announced, around.base, file, weights_key(file.digest))
