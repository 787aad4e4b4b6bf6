"""Everything between a request's arrival and its place in the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import nullcontext

from services.replica_worker.control.records import UNUSABLE
from services.replica_worker.core.admission import Door, Refusal, admit, given_up
from services.replica_worker.core.asked import objection
from services.replica_worker.core.pace import TurnedAway
from services.replica_worker.core.row_pace import Forecast
from services.replica_worker.core.tokens import LONGEST_RETRY_S, TooLong, fit
from services.replica_worker.core.turn import Line, turn_of
from services.replica_worker.engine.port import EngineRequest
from services.replica_worker.engine.shaping import Grammar, GrammarUnusable
from services.replica_worker.means import Means
from services.replica_worker.requests.answer_text import AnswerText
from services.replica_worker.requests.dispatch import Dispatcher
from services.replica_worker.requests.prompt import encode
from services.replica_worker.requests.running import Running
from services.replica_worker.text.chat import ChatUnusable
from services.replica_worker.tiers.errors import AdapterFailed, AdapterUnavailable
from shared.messages.desired import AdapterRecord
from shared.messages.generation import GenerateRequest
from shared.messages.identity import AdapterKey

RECORD_WAIT_S = 2.0
"""An alias can reach a gateway before the adapter's record reaches this replica."""


class RefusedHere(Exception):
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


class Admission:
    def __init__(self, means: Means, dispatcher: Dispatcher) -> None:
        self._by = means
        self._dispatcher = dispatcher
        self._turned_away = TurnedAway()
        self._without_row = TurnedAway(longest_s=LONGEST_RETRY_S)

    def at_the_door(self, running: Running, waiting: int, others: Iterable[Running]) -> Refusal | None:
        """`waiting` requests have no row, of all the `others` that are here."""
        by, now_s = self._by, self._by.clock.now_s()
        to_fetch = self._to_fetch(running, others)
        pace, forecast = by.loader.disk.pace, self._forecast(running, waiting, others)
        door = Door(
            pool_id=by.identity.pool_id,
            base_model_hash=by.identity.base_model_hash,
            only=by.loader.merged,
            not_ready=by.standing.not_ready,
            draining=bool(by.standing.draining),
            waiting=waiting,
            fetch_wait_s=pace.wait_s(sum(to_fetch[1:])),
            turned_away_wait_s=self._turned_away.wait_s(now_s),
            queue_limit=by.queue_limit,
            tokens_in_flight=by.promises.total,
            tokens_per_s=by.rate.per_s(now_s),
            forecast=forecast,
            comers_wait_s=self._without_row.wait_s(now_s),
        )
        refusal = admit(running.request, door)
        if to_fetch and refusal is not None and refusal.code == "overloaded":  # others do not come again here
            self._turned_away.add(pace.wait_s(to_fetch[0]), now_s)
        elif forecast is not None and refusal is not None and not running.request.attempt:
            self._without_row.add(forecast.row_s, now_s)
        return refusal

    def given_up(self, running: Running) -> Refusal | None:
        """Why it is to wait no longer for its turn."""
        if running.turn_at_s is not None or running.in_line_at_s is None:
            return None
        now_s = self._by.clock.now_s()
        waited_s, retry_s = now_s - running.in_line_at_s, self._without_row.wait_s(now_s)
        return given_up(running.request.objective_s, waited_s, self._dispatcher.free_rows, retry_s)

    def _forecast(self, running: Running, waiting: int, others: Iterable[Running]) -> Forecast | None:
        free_rows, prompts = self._dispatcher.free_rows, self._dispatcher.prompts
        if waiting < free_rows and not prompts:
            return None
        line = Line(
            before=self._dispatcher.before(running.request.tenant_id, others),
            free_rows=free_rows,
            max_rows=self._by.max_rows,
            prompts=prompts,
            handed=self._dispatcher.handed,
            rows=self._dispatcher.rows if waiting >= free_rows else (),
        )
        return turn_of(line, running.request.objective_s, self._by.row_pace, self._by.capacity, self._by.margin)

    def _to_fetch(self, running: Running, others: Iterable[Running]) -> list[int]:
        """The sizes in bytes of its own adapter and of all that others wait for; nothing if it is here or comes."""
        loader, key = self._by.loader, running.key
        if key is None or loader.tier_of(key) != "remote":
            return []
        coming = {each.key for each in others if each.key is not None and loader.tier_of(each.key) == "remote"}
        if key in coming or (own := self._by.records.get(key)) is None:
            return []
        return [own.size_bytes, *(record.size_bytes for record in self._by.records.of(coming).values())]

    async def prepare(self, running: Running) -> EngineRequest:
        """What the engine is to run, once it is its turn; `running` then holds its text, its counts and its slot
        reference. All that takes time on the way to a slot is done before it waits.

        Raises RefusedHere, EngineFailed. The caller tells the dispatcher of the request's end, also after a failure.
        """
        request = running.request
        record = await self._record(running)
        prompt = await self._prompt(request)
        budget = fit(len(prompt), request.sampling.max_tokens, self._by.watch.info.max_context_tokens)
        if isinstance(budget, TooLong):
            code, reason, about = "context_length_exceeded", budget.reason, budget.about
            raise RefusedHere(Refusal(code=code, reason=reason, elsewhere=False, about=about))
        running.prompt_token_ids = prompt
        running.grammar = await self._grammar(request.sampling.json_schema)
        running.answer_tokens_limit = budget.max_tokens
        running.text = self._text(request)
        self._by.promises.make(request.request_id, running.promised)
        await self._turn(running, record)
        return running.for_engine()

    async def _record(self, running: Running) -> AdapterRecord | None:
        if running.inside is not None:
            return running.inside.record
        return None if running.key is None else await self._known(running.key)

    async def _known(self, key: AdapterKey) -> AdapterRecord:
        try:
            async with asyncio.timeout(RECORD_WAIT_S):
                record = await self._by.records.wait_for(key)
        except TimeoutError:
            reason = f"This replica knows no adapter {key.adapter_id} with the digest asked for"
            raise RefusedHere(_unavailable(reason, 1.0)) from None
        if record.status in UNUSABLE:
            reason = f"Adapter {key.adapter_id} is {record.status}."
            raise RefusedHere(Refusal(code="adapter_failed", reason=reason, elsewhere=False))
        return record

    async def _turn(self, running: Running, record: AdapterRecord | None) -> None:
        if record is not None and record.key == self._by.loader.merged:
            record = None  # its weights are the base's here: all it needs is a row
        try:
            if record is not None:
                running.tier = self._by.loader.tier_of(record.key)
            with nullcontext() if record is None else self._by.loader.demand.awaiting(record.key):
                if record is not None:
                    await self._by.loader.fetch(record)
                await self._dispatcher.turn(running, record)
        except (AdapterFailed, AdapterUnavailable) as error:
            raise RefusedHere(refusal_of(error)) from error

    async def _prompt(self, request: GenerateRequest) -> list[int]:
        if (found := objection(request, self._by.watch.info.vocabulary_size)) is not None:
            raise RefusedHere(Refusal(code="invalid_request", reason=found.reason, elsewhere=False, about=found.about))
        try:
            prompt = await encode(self._by.tokenizer, request)
        except ChatUnusable as error:
            raise RefusedHere(_invalid(str(error), "prompt")) from error
        if not prompt:
            raise RefusedHere(_invalid("the prompt has no tokens", "prompt"))
        return prompt

    async def _grammar(self, json_schema: str) -> Grammar | None:
        try:
            return await self._by.watch.engine.understand(json_schema) if json_schema else None
        except GrammarUnusable as error:
            raise RefusedHere(_invalid(str(error), "json_schema")) from error

    def _text(self, request: GenerateRequest) -> AnswerText:
        try:
            produced, sent_chars = request.produced_token_ids, request.produced_text_chars
            return AnswerText(self._by.tokenizer, request.sampling.stop, produced, sent_chars)
        except ValueError as error:
            raise RefusedHere(_invalid(str(error))) from error


def refusal_of(error: AdapterFailed | AdapterUnavailable) -> Refusal:
    if isinstance(error, AdapterUnavailable):
        return _unavailable(str(error), error.retry_after_s)
    return Refusal(code="adapter_failed", reason=f"{error}.", elsewhere=error.elsewhere)


def _unavailable(reason: str, retry_after_s: float | None) -> Refusal:
    return Refusal(code="adapter_unavailable", reason=f"{reason}.", elsewhere=True, retry_after_s=retry_after_s)


def _invalid(reason: str, about: str = "") -> Refusal:
    return Refusal(code="invalid_request", reason=f"{reason[:1].upper()}{reason[1:]}.", elsewhere=False, about=about)
