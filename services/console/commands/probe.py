"""`lorafleet probe`: canaries in a live fleet, asked now and then, and judged as in the isolation test."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from infra.adapters.marked import BASE, Answer, Judge
from services.console.commands.adapters import announce, describe, settled
from services.console.commands.bases import chosen_base
from services.console.commands.output import Output
from services.console.core import probing
from services.console.core.outcome import UNREACHABLE, USAGE
from services.console.core.probing import Canary, Question
from services.console.io.admin import Admin, CommandFailed
from services.console.io.chat import Door
from services.console.io.meters import Meters
from shared.pipeline.folder import Identity
from shared.runtime.clock import Clock

_ACTIVE_S = 120.0
_KNOWN_S, _POLL_S = 30.0, 0.2
_AT_ONCE = 32
"""Questions under way. Without a limit, a fleet that hung for an hour would be asked an hour's questions at once."""
_NONE_HERE = (
    "No canaries are registered here: `python -m infra.adapters.canary MODEL FOLDER --count 8 --guarded` makes some,"
    " and `lorafleet probe --canaries FOLDER` brings them in."
)


@dataclass(frozen=True, kw_only=True)
class Wish:
    """`for_s` None: until Ctrl-C. `canaries`: a folder of canaries to bring in first."""

    rate_per_s: float
    for_s: float | None
    canaries: Path | None
    base: str | None


class Prober:
    """Everything that it does in the fleet belongs to its own tenant; its key ends with it."""

    def __init__(self, admin: Admin, url: str, meters: Meters, clock: Clock, out: Output) -> None:
        self._admin = admin
        self._url = url
        self._meters = meters
        self._clock = clock
        self._out = out
        self._counts: Counter[str] = Counter()
        self._asking = 0

    async def run(self, wish: Wish) -> int:
        """The exit code. Raises CommandFailed when nothing could be asked."""
        self._admin.create("/internal/tenants", {"tenant_id": probing.TENANT})
        base_hash = chosen_base(self._admin, wish.base)
        canaries = await asyncio.to_thread(self._canaries, wish.canaries, base_hash)
        key = self._admin.post("/internal/keys", {"tenant_id": probing.TENANT, "may_call_base": True})
        try:
            door, base_name = Door(self._url, key["api_key"]), self._base_name(base_hash)
            await self._until_known(door, {base_name, *(each.alias for each in canaries)})
            await self._ask_on(door, canaries, base_name, wish)
        finally:
            self._admin.delete(f"/internal/keys/{quote(key['key_id'], safe='')}")
            if self._counts:
                self._out.record(dict(self._counts), probing.summary(self._counts))
        return probing.code_of(self._counts)

    def _canaries(self, folder: Path | None, base_hash: str) -> list[Canary]:
        """Those of this base that are active, after those in the folder have come in."""
        for each in sorted(folder.glob("*/canary.json")) if folder else ():
            self._bring(each.parent, base_hash)
        listed = self._admin.get("/internal/adapters", tenant_id=probing.TENANT, status="active")["adapters"]
        ids = [one["adapter_id"] for one in listed if one["base_model_hash"] == base_hash]
        canaries = [canary for adapter_id in ids if (canary := probing.canary_of(adapter_id)) is not None]
        if not canaries:
            raise CommandFailed(_NONE_HERE, USAGE)
        return canaries

    def _bring(self, folder: Path, base_hash: str) -> None:
        described, marker = describe(folder), json.loads((folder / "canary.json").read_text())["marker"]
        try:
            canary = probing.canary_for(marker, described.checksum)
        except ValueError as error:
            raise CommandFailed(f"{folder} cannot be brought in: {error}.", USAGE) from error
        identity = Identity(
            tenant_id=probing.TENANT,
            base_model_hash=base_hash,
            adapter_id=canary.adapter_id,
            alias=canary.alias,
        )
        announce(self._admin, described, identity)
        settled(self._admin, canary.adapter_id, _ACTIVE_S)

    def _base_name(self, base_hash: str) -> str:
        known = self._admin.every("/internal/base-models", "base_models")
        return str(next(base["name"] for base in known if base["base_model_hash"] == base_hash))

    async def _until_known(self, door: Door, names: set[str]) -> None:
        """Keys and aliases reach gateways a moment after they were granted."""
        deadline_s, missing = self._clock.now_s() + _KNOWN_S, names
        while missing := missing - await asyncio.to_thread(door.models_by_now):
            if self._clock.now_s() > deadline_s:
                raise CommandFailed(
                    f"The gateway does not know {sorted(missing)[0]} after {_KNOWN_S:g} s.", UNREACHABLE
                )
            await self._clock.sleep_s(_POLL_S)

    async def _ask_on(self, door: Door, canaries: list[Canary], base_name: str, wish: Wish) -> None:
        """At a steady rate, however long answers take, as long as any come."""
        judge = Judge({each.adapter_id: each.marker for each in canaries})
        began_s, number = self._clock.now_s(), 0
        async with asyncio.TaskGroup() as asking:
            while wish.for_s is None or self._clock.now_s() - began_s < wish.for_s:
                question = probing.question(number, canaries, base_name)
                if self._asking < _AT_ONCE:
                    self._asking += 1
                    asking.create_task(self._ask(door, judge, question))
                else:
                    self._note(probing.FAILED, question, f"not asked: {_AT_ONCE} questions have no answer yet")
                number += 1
                await self._clock.sleep_s(began_s + number / wish.rate_per_s - self._clock.now_s())

    async def _ask(self, door: Door, judge: Judge, question: Question) -> None:
        began_s = self._clock.now_s()
        try:
            answer = await asyncio.to_thread(_answer, door, question)
        except CommandFailed as error:
            self._note(probing.FAILED, question, str(error))
            return
        finally:
            self._asking -= 1
        self._meters.answer_s.observe(self._clock.now_s() - began_s)
        self._meters.answered_at_s.set(self._clock.wall_s())
        verdict = judge.judge(answer, (question.canary.adapter_id if question.canary else BASE,))
        self._note(verdict.kind, question, verdict.reason)

    def _note(self, kind: str, question: Question, reason: str) -> None:
        self._counts[kind] += 1
        self._meters.answers.labels(kind).inc()
        if kind != "own":
            at = datetime.fromtimestamp(self._clock.wall_s(), UTC).isoformat(timespec="seconds")
            self._out.remark(f"{at} {kind} {question.model}: {reason}")


def _answer(door: Door, question: Question) -> Answer:
    body = {"model": question.model, "messages": [{"role": "user", "content": question.prompt}]}
    body |= {"temperature": 0, "max_tokens": probing.MAX_TOKENS}
    text, headers = "", dict[str, str]()
    for headers, delta in door.stream(body):  # noqa: B007  (the last headers are used below)
        text += delta
    return Answer(adapter_id=headers.get("x-adapter-id", ""), text=text)
