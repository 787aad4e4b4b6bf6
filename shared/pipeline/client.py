"""The client of a fine-tuning pipeline; `shared.pipeline.connect` makes one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import msgspec

from shared.messages.adapters import AdapterRegistered, Defect
from shared.messages.results import PipelineResults
from shared.pipeline.door import Door
from shared.pipeline.evaluation import Signer, signed
from shared.pipeline.folder import Identity, announcement, read_folder
from shared.pipeline.hearing import Heard, Hearing
from shared.pipeline.known import Known, news
from shared.pipeline.outcome import OnProgress, Outcome, OutcomeUnknown, Progress, Refused, Rejected, unheard
from shared.pipeline.uploading import OnSent, Upload

OUTCOME_S = 900.0
_FIRST_LOOK_S, _LONGEST_LOOK_S = 0.1, 2.0
_LOOK_BESIDE_EVENTS_S = 2.0


class Pipeline:
    """Whatever is cancelled or runs out of time may simply be done again. Methods that need the admin address
    raise ValueError without one."""

    def __init__(self, door: Door | None, hearing: Hearing | None) -> None:
        self._door = door
        self._hearing = hearing

    async def register_folder(
        self, path: Path, identity: Identity, *, timeout_s: float = OUTCOME_S, on_progress: OnProgress = unheard
    ) -> Outcome:
        """Send a PEFT folder's weights, announce it, and wait for what becomes of it. `timeout_s` counts from the
        announcement on. Raises UnclearFolder, and what `upload` and `register` raise."""
        folder = await asyncio.to_thread(read_folder, path)
        announced = announcement(folder, identity, "")

        def on_sent(sent_bytes: int, total_bytes: int) -> None:
            step = Progress(adapter_id=announced.adapter_id, step="uploading")
            on_progress(msgspec.structs.replace(step, sent_bytes=sent_bytes, total_bytes=total_bytes))

        uri = await self.upload(folder.weights, folder.checksum, on_sent)
        announced = msgspec.structs.replace(announced, weights_uri=uri)
        return await self.register(announced, timeout_s=timeout_s, on_progress=on_progress)

    async def upload(self, file: Path, checksum: str, on_sent: OnSent = lambda sent, total: None) -> str:
        """Send a file, from where it broke off; the `weights_uri` to announce. Raises Unreachable, Refused."""
        return await Upload(self._asked, file, checksum, on_sent).run()

    async def register(
        self, announced: AdapterRegistered, *, timeout_s: float = OUTCOME_S, on_progress: OnProgress = unheard
    ) -> Outcome:
        """Announce an adapter and wait for its outcome, also for one that was told long ago. Raises Unreachable,
        Refused, OutcomeUnknown. By event alone, without an admin address, an outcome of an earlier announcement of
        the same adapter is not told again and ends in OutcomeUnknown."""
        following = _Following(announced, on_progress)
        try:
            async with asyncio.timeout(timeout_s):
                if self._hearing is not None:
                    return await self._by_event(self._hearing, following)
                return await self._by_post(following)
        except TimeoutError as error:
            status = following.status
            how_far = f"is still {status}" if status else "has no outcome that was told"
            raise OutcomeUnknown(f"{announced.adapter_id} {how_far} after {timeout_s:g} s.", status) from error

    async def announce(self, announced: AdapterRegistered) -> Known | Rejected:
        """POST an announcement: the adapter once its file is checked, whatever is still to come. Raises
        Unreachable, Refused."""
        known = await self._post(announced)
        if isinstance(known, Rejected):
            return known
        checked = await self._until(known, lambda now: now.status != "registered", lambda now: None)
        return checked.outcome if isinstance(checked.outcome, Rejected) else checked

    async def post_evaluation(self, known: Known, results: PipelineResults, signer: Signer) -> Outcome:
        """Post the results for an adapter that was announced with `evaluated_by="pipeline"`; what becomes of it by
        the evaluation policy. Raises Unreachable, Refused."""
        body = signed(known.adapter_id, known.checksum, results, signer)
        try:
            after = await self._asked.post(f"{_path(known.adapter_id)}/evaluations", body, Known)
        except Refused as refused:
            after = await self.state(known.adapter_id) or known
            if refused.status != 409 or after.outcome is None:  # else an earlier attempt was taken, its answer lost
                raise
        assert after.outcome is not None
        return after.outcome

    async def state(self, adapter_id: str) -> Known | None:
        """Where an adapter stands, None for an unknown one. Raises Unreachable, Refused."""
        return await self._asked.get(_path(adapter_id), Known)

    async def known(self, tenant_id: str) -> dict[str, Known]:
        """All adapters of a tenant, by their ids. Raises Unreachable, Refused."""
        found: dict[str, Known] = {}
        after = ""
        while True:
            page = await self._asked.get("/internal/adapters", _Page, tenant_id=tenant_id, after=after)
            found |= {one.adapter_id: one for one in page.adapters} if page else {}
            if page is None or page.next is None:
                return found
            after = page.next

    @property
    def _asked(self) -> Door:
        if self._door is None:
            raise ValueError("this needs the admin address: give `connect` an admin_url and an admin_key")
        return self._door

    async def _by_event(self, hearing: Hearing, following: _Following) -> Outcome:
        announced = following.announced
        with hearing.expecting(announced.adapter_id) as heard:
            before = await self.state(announced.adapter_id) if self._door else None
            if before is not None and before.status != "rejected" and before.is_of(announced) and before.outcome:
                return before.outcome
            await hearing.publish(announced)
            following.reached("announced")
            return await self._heard_or_seen(heard, following, before) if self._door else await heard

    async def _heard_or_seen(self, heard: Heard, following: _Following, before: Known | None) -> Outcome:
        """Events come at once; asking now and then finds what was told while nobody listened."""
        while True:
            await asyncio.wait({heard}, timeout=_LOOK_BESIDE_EVENTS_S)
            if heard.done():
                return heard.result()
            known = await self.state(following.announced.adapter_id)
            if found := news(known, following.announced, before):
                return found
            following.saw(known)

    async def _by_post(self, following: _Following) -> Outcome:
        known = await self._post(following.announced)
        if isinstance(known, Rejected):
            return known
        settled = await self._until(known, lambda now: now.outcome is not None, following.saw)
        assert settled.outcome is not None
        return settled.outcome

    async def _post(self, announced: AdapterRegistered) -> Known | Rejected:
        try:
            return await self._asked.post("/internal/adapters", announced, Known)
        except Refused as refused:
            if refused.status == 409 or refused.defects:
                return _rejected(announced.adapter_id, refused)
            raise

    async def _until(self, known: Known, enough: Callable[[Known], bool], saw: Callable[[Known], None]) -> Known:
        """Look again, less and less often, until it is enough."""
        look_s = _FIRST_LOOK_S
        while True:
            saw(known)
            if enough(known):
                return known
            await asyncio.sleep(look_s)
            look_s = min(2 * look_s, _LONGEST_LOOK_S)
            known = await self.state(known.adapter_id) or known


class _Page(msgspec.Struct, frozen=True):
    adapters: list[Known]
    next: str | None


class _Following:
    """One announcement on its way, and how far it is known to have come."""

    def __init__(self, announced: AdapterRegistered, on_progress: OnProgress) -> None:
        self.announced = announced
        self.status = ""
        self._on_progress = on_progress

    def saw(self, known: Known | None) -> None:
        if known is not None and known.is_of(self.announced) and known.status != self.status:
            self.status = known.status
            self.reached(known.status)

    def reached(self, step: str) -> None:
        self._on_progress(Progress(adapter_id=self.announced.adapter_id, step=step))


def _path(adapter_id: str) -> str:
    return f"/internal/adapters/{quote(adapter_id, safe='')}"


def _rejected(adapter_id: str, refused: Refused) -> Rejected:
    """An id that is taken is told as an event would tell it."""
    taken = Defect(code=refused.code, message=str(refused))
    return Rejected(adapter_id=adapter_id, defects=refused.defects or (taken,))
