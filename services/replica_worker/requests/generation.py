"""Requests of gateways: admitted, run, paused and resumed, streamed. How they end is in `open_requests.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from services.replica_worker.engine.port import EngineFailed, EngineRequest, StepToken
from services.replica_worker.means import Means
from services.replica_worker.requests.admission import Admission, RefusedHere, refusal_of
from services.replica_worker.requests.answers import Answers
from services.replica_worker.requests.counting import Counting
from services.replica_worker.requests.dispatch import Dispatcher
from services.replica_worker.requests.gateways import Gateways
from services.replica_worker.requests.open_requests import OpenRequests
from services.replica_worker.requests.proving import until_proven
from services.replica_worker.requests.running import Running
from services.replica_worker.tiers.errors import AdapterFailed, AdapterUnavailable
from shared.bus.port import BusUnavailable, Ids
from shared.messages.generation import Cancel, Cancelled, GenerateRequest, Replay, Replayed, TokenChunk
from shared.messages.reports import GatewayReport
from shared.runtime.logs import bind, get_logger

_log = get_logger(__name__)


class Generation:
    def __init__(self, means: Means) -> None:
        self._by = means
        self.dispatcher = Dispatcher(means, self._pause)
        self._admission = Admission(means, self.dispatcher)
        self._answers = Answers(means)
        self._gateways = Gateways(means)
        self._counting = Counting(means, self.dispatcher)
        self._open = OpenRequests(means, self.dispatcher, self._answers)

    def on_generate(self, request: GenerateRequest, ids: Ids) -> None:
        self._gateways.hear(request.gateway_id)
        self._begin(Running(request=request, arrived_at_s=self._by.clock.now_s()), self._arrive)

    async def run_inside(self, running: Running) -> None:
        """A request of this process itself, until its end. Pair it with `stop`, whatever happens."""
        assert running.inside is not None, "nobody would hear of its end"
        if await self._comes_in(running):
            self._begin(running, self._enter)
        await running.inside.over.wait()

    def stop(self, running: Running) -> None:
        """End a request if it has not ended."""
        if self._open.get(running.request.request_id) is running:
            self._open.stop(running, "cancelled")

    def _begin(self, running: Running, entering: Callable[[Running], Awaitable[None]]) -> None:
        running.admission = asyncio.create_task(self._ended_by_failure(running, entering))

    async def _arrive(self, running: Running) -> None:
        request = running.request
        if not await self._answers.received(request) or self._open.get(request.request_id) is not None:
            return  # it is over or under way already, and so are its answers
        if request.traceparent:
            running.span = self._by.tracer.begin("replica request", request.traceparent, self._by.clock.wall_s())
        if await self._comes_in(running):
            await self._enter(running)

    async def _comes_in(self, running: Running) -> bool:
        if (refusal := self._admission.at_the_door(running, self.waiting, self._open)) is not None:
            await self._open.turn_away(running, refusal)
            return False
        self._open.add(running)
        return True

    async def on_cancel(self, cancel: Cancel, ids: Ids) -> Cancelled:
        self._gateways.hear(cancel.gateway_id)
        running = self._open.get(cancel.request_id)
        if running is None or running.request.gateway_id != cancel.gateway_id:
            return Cancelled(request_id=cancel.request_id, found=False)
        self._open.stop(running, "cancelled")
        return Cancelled(request_id=cancel.request_id, found=True)

    async def on_replay(self, ask: Replay, ids: Ids) -> Replayed:
        self._gateways.hear(ask.gateway_id)
        return self._by.frames.book.replay(ask)

    async def on_gateway_report(self, report: GatewayReport, ids: Ids) -> None:
        self._gateways.hear(report.gateway_id)

    def on_step(self, tokens: Sequence[StepToken]) -> None:
        """All tokens of one engine step make one frame for each gateway, at once; those of unproven slots wait."""
        now_s = self._by.clock.now_s()
        served = [(each, token) for token in tokens if (each := self._open.get(token.request_id)) and each.submitted]
        self._send([token for running, token in served if not running.hold_back(token, now_s)])
        # An answer that a stop string ended has ended with this step as well, which its engine could not know.
        over = frozenset(each.request_id for each in tokens if each.finish or self._open.get(each.request_id) is None)
        self._counting.step(tokens, (running for running, _ in served), over)

    async def tick(self) -> None:
        """Deadlines and leases; to be called several times a second."""
        now_s = self._by.clock.now_s()
        self._answers.look_for_losses()
        self.dispatcher.wake()
        for running in self._open:
            if (refusal := self._admission.given_up(running)) is not None:
                await self._open.send_away(running, refusal)
            elif running.late(now_s):
                # Not the number of seconds: of a request that was elsewhere before, this is only what was left.
                await self._open.fail(running, "no token came in time", "deadline")
        for gateway_id in self._gateways.take_silent():
            await self._open.leave(gateway_id)

    async def beat(self) -> None:
        """Every 0.5 s: the last frame number to whoever may have missed it."""
        self._by.frames.beat({each.request.gateway_id for each in self._open if each.accepted and each.inside is None})

    @property
    def waiting(self) -> int:
        """Requests without a row. The engine's own figures are those of the last tick: a burst comes between."""
        return len(self._open) - min(self.dispatcher.handed, self._by.max_rows)

    @property
    def open(self) -> int:
        return len(self._open)

    async def idle(self) -> None:
        """Returns when no request is left."""
        await self._open.idle()

    async def end_all(self, reason: str) -> None:
        """Every request is handed on, or refused; returns when their references are released."""
        admissions = [each.admission for each in self._open if each.admission is not None]
        for running in self._open:
            await self._open.hand_on(running, reason)
        await asyncio.gather(*admissions, return_exceptions=True)

    async def _enter(self, running: Running) -> None:
        prepared = await self._admission.prepare(running)
        await until_proven(running, prepared, self._by.watch.engine)
        running.accepted = True
        await self._answers.accepted(running)
        self._submit(running, prepared)

    def _pause(self, running: Running, turn: Awaitable[None]) -> None:
        """It has given back its slot. Its stream stands still until it has one again."""
        self._by.watch.engine.abort(running.request.request_id)
        running.pause()
        self._by.meters.paused.inc()
        self._begin(running, partial(self._enter_again, turn=turn))

    async def _enter_again(self, running: Running, turn: Awaitable[None]) -> None:
        try:
            await self.dispatcher.turn_again(turn)
        except (AdapterFailed, AdapterUnavailable) as error:
            raise RefusedHere(refusal_of(error)) from error
        prepared = running.for_engine()
        await until_proven(running, prepared, self._by.watch.engine)
        self._submit(running, prepared)

    async def _ended_by_failure(self, running: Running, entering: Callable[[Running], Awaitable[None]]) -> None:
        with bind(request_id=running.request.request_id, adapter_id=running.request.adapter_id):
            try:
                await entering(running)
            except RefusedHere as error:
                await self._open.refuse(running, error.refusal)
            except BusUnavailable as error:
                self._open.stop(running, "unanswered")
                _log.warning("an answer could not be sent, so the request is dropped", reason=str(error))
            except EngineFailed as error:
                await self._open.fail(running, f"the engine failed: {error}")
            except Exception as error:
                _log.exception("a request failed", error=error)
                await self._open.fail(running, "the replica failed on this request")

    def _submit(self, running: Running, prepared: EngineRequest) -> None:
        if (ended := running.over_before()) is not None:
            self._open.stop(running, ended)
            return
        if running.submitted:
            self._let_go(running)
        else:
            self._by.watch.engine.submit(prepared)
            running.submitted = True
        _log.info("a request runs", tier=running.tier, prompt_tokens=running.prompt_tokens)

    def _let_go(self, running: Running) -> None:
        """Its slot is proven: what the request has produced meanwhile may leave."""
        self._counting.proof(running)
        self._send(running.let_go())

    def _send(self, tokens: Sequence[StepToken]) -> None:
        chunks: list[tuple[Running, TokenChunk]] = []
        for token in tokens:
            if (running := self._open.get(token.request_id)) is None:
                continue  # a stop string before this token was its end
            self._counting.resumed(running, token)
            chunk = running.advance(token)
            chunks.append((running, chunk))
            self._counting.tokens(running, len(chunk.token_ids))
            if chunk.finish is not None:
                if token.finish is None:  # a stop string is ours, the engine knows nothing of it
                    self._by.watch.engine.abort(token.request_id)
                self._open.end(running, chunk.finish.reason)
        self._counting.left(sum([len(chunk.token_ids) for _, chunk in chunks]))
        self._answers.write(chunks)
