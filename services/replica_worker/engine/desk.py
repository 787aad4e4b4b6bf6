"""The event loop's side of every engine of ours: requests and probes go in, tokens and answers come out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from collections.abc import Sequence as SequenceOf

from services.replica_worker.engine.ledger import Ledger
from services.replica_worker.engine.port import EngineFailed, EngineInfo, EngineRequest, OnStep, Probe, StepToken
from services.replica_worker.engine.rate import RateMeter
from services.replica_worker.engine.sequence import Outcome, Sequence, probe_request

Post = Callable[[Sequence], None]


class Desk:
    """`enter` and `leave` hand a sequence to the engine's schedule and take it out again, sooner or later."""

    def __init__(self, info: EngineInfo, on_step: OnStep, enter: Post, leave: Post) -> None:
        self.ledger = Ledger(info)
        self._on_step = on_step
        self._enter = enter
        self._leave = leave
        self._probes: dict[Sequence, asyncio.Future[Probe]] = {}
        self._rate = RateMeter()

    @property
    def tokens_per_s(self) -> float:
        return self._rate.per_s(time.monotonic())

    def submit(self, request: EngineRequest) -> None:
        """Raises ValueError for an id that is live; any other refusal comes as an error token."""
        why = self.ledger.refusal(request)
        sequence = Sequence(request, digest="" if why else self.ledger.digest_of(request.slot))
        self.ledger.open(sequence)
        if why:
            error = StepToken(request.request_id, -1, request.first_position, error=why)
            asyncio.get_running_loop().call_soon(self.deliver, [(sequence, error)])
        else:
            self._enter(sequence)

    def abort(self, request_id: str) -> None:
        sequence = self.ledger.close(request_id)
        if sequence is not None:
            # Its slot may be written from now on, while a step still computes with it: nobody shall find that.
            sequence.private = True
            self._leave(sequence)

    def probe(self, prompt_token_ids: SequenceOf[int], slot: int, top: int) -> asyncio.Future[Probe]:
        """Joins the batch like any prompt, at once. Cancelling the future takes it out again. Raises ValueError
        when the prompt or the slot cannot be run."""
        request = probe_request(prompt_token_ids, slot)
        if why := self.ledger.refusal(request):
            raise ValueError(why)
        sequence = Sequence(request, self.ledger.digest_of(slot), probe_top=top)
        answer: asyncio.Future[Probe] = asyncio.get_running_loop().create_future()
        self._probes[sequence] = answer
        answer.add_done_callback(lambda _: self._end_probe(sequence))  # before anyone who waits for it wakes
        self.ledger.occupy(slot)
        self._enter(sequence)
        return answer

    def deliver(self, outcomes: Iterable[Outcome]) -> None:
        """What one step produced, to those who are still there."""
        tokens = []
        for sequence, outcome in outcomes:
            if sequence in self._probes:
                _answer(self._probes[sequence], outcome)
            elif isinstance(outcome, StepToken) and self.ledger.settle(sequence, outcome):
                tokens.append(outcome)
        if tokens:
            self._rate.add(len(tokens), time.monotonic())
            self._on_step(tokens)

    def fail(self, failure: EngineFailed) -> None:
        """The engine is broken: everything ends with its reason."""
        self._fail_probes(failure)
        live = list(self.ledger.live.items())
        self.deliver([(seq, StepToken(id_, -1, seq.next_position, error=str(failure))) for id_, seq in live])

    def close(self) -> None:
        """The engine is closed: requests end without a token."""
        self._fail_probes(EngineFailed("the engine is closed"))
        self.ledger.live.clear()

    def _end_probe(self, sequence: Sequence) -> None:
        del self._probes[sequence]
        self.ledger.vacate(sequence.request.slot)
        self._leave(sequence)

    def _fail_probes(self, failure: EngineFailed) -> None:
        for probe in self._probes.values():
            if not probe.done():
                probe.set_exception(failure)


def _answer(probe: asyncio.Future[Probe], outcome: StepToken | Probe) -> None:
    if probe.done():
        return
    if isinstance(outcome, Probe):
        probe.set_result(outcome)
    else:
        probe.set_exception(EngineFailed(outcome.error or "the probe ended without a result"))
