"""AsyncLLM, seen as a line of orders: each is sent when the one before it has been.

vLLM runs its scheduler in a child of this process. It takes orders from one socket between two steps, so what is
sent in order happens in order: an abort before the removal of the adapter that the request ran on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.inputs.engine import tokens_input
from vllm.lora.request import LoRARequest
from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.metrics.loggers import StatLoggerBase
from vllm.v1.metrics.stats import SchedulerStats

from services.replica_worker.engine.port import EngineFailed, EngineRequest
from services.replica_worker.engine.sequence import Sequence

from .places import Place

T = TypeVar("T")
Outputs = list[tuple[Sequence, RequestOutput | Exception]]
OnOutputs = Callable[[Outputs], None]
SILENCE_S = 60.0
"""Without a step or an answer that somebody waits for; no step takes that long, and no load."""
_SHUTDOWN_S = 2.0


class Core:
    """`on_outputs` is called on the event loop once a step, with what the step produced."""

    def __init__(self, flags: Mapping[str, Any]) -> None:
        """Start vLLM. Blocking, for as long as it takes to load the model; not on the event loop."""
        self.steps = 0
        self.running = 0
        self.kv_share = 0.0
        self._streams: dict[Sequence, Any] = {}
        self._numbers = 0
        self._on_outputs: OnOutputs = lambda outputs: None
        self._heard_at_s = 0.0
        self._answers: set[asyncio.Future[Any]] = set()
        self._orders: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
        self._sending: asyncio.Task[None] | None = None
        self._llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**flags), stat_loggers=[self._listener])

    def begin(self, on_outputs: OnOutputs) -> None:
        self._on_outputs = on_outputs
        self._heard_at_s = time.monotonic()
        self._sending = asyncio.create_task(self._send(), name="vllm-orders")

    async def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])
        self._streams.clear()
        if self._llm.output_handler is not None:  # it would take the end of its core for an accident
            self._llm.output_handler.cancel()
        await asyncio.to_thread(self._llm.shutdown, _SHUTDOWN_S)

    def trouble(self) -> str | None:
        """Why nothing can be expected of vLLM any more, in one sentence."""
        if self._llm.errored:
            return "vLLM's core has died"
        if self._sending is not None and self._sending.done():
            return "vLLM takes no orders any more"
        if not (self._streams or self._answers):
            self._heard_at_s = time.monotonic()
        silence_s = time.monotonic() - self._heard_at_s
        return f"vLLM's core has been silent for {silence_s:.0f} s" if silence_s > SILENCE_S else None

    def give_up(self, failure: EngineFailed) -> None:
        """Nobody waits for an answer any more."""
        for answer in self._answers:
            if not answer.done():
                answer.set_exception(failure)

    @property
    def kv_tokens(self) -> int:
        cache = self._llm.vllm_config.cache_config
        return int((cache.num_gpu_blocks or 0) * cache.block_size)

    def add(self, sequence: Sequence, sampling: Mapping[str, Any], place: Place | None) -> None:
        self._orders.put_nowait(lambda: self._add(sequence, sampling, place))

    def abort(self, sequence: Sequence) -> None:
        """Of a sequence that has ended or was never added: nothing."""
        self._orders.put_nowait(lambda: self._abort(sequence))

    async def add_adapter(self, place: Place) -> None:
        """Raises whatever vLLM says about the adapter; it may stand in a slot half-loaded then."""
        await self._answer(lambda: self._llm.add_lora(_lora(place)))

    async def ask(self, method: str, *args: object) -> list[Any]:
        """What a method of the worker extension returns, from every worker. Raises EngineFailed: whatever it was
        to do to the slots, nobody knows how far it came."""
        try:
            return list(await self._answer(lambda: self._llm.collective_rpc(method, args=args)))
        except EngineFailed:
            raise
        except Exception as error:
            raise EngineFailed(f"vLLM's worker failed at {method!r}: {error}") from error

    async def forget_prefixes(self) -> None:
        """Empty the prefix cache; what running requests have computed stays."""
        await self._answer(lambda: self._llm.reset_prefix_cache())

    async def _answer(self, order: Callable[[], Awaitable[T]]) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._answers.add(answer)

        async def send() -> None:
            # Sent, but not waited for: others may be sent before the answer comes.
            asking = asyncio.ensure_future(order())
            asking.add_done_callback(lambda done: self._pass_on(done, answer))
            await asyncio.sleep(0)

        self._orders.put_nowait(send)
        try:
            return await answer
        finally:
            self._answers.discard(answer)

    def _pass_on(self, done: asyncio.Future[T], answer: asyncio.Future[T]) -> None:
        self._heard_at_s = time.monotonic()
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(done.result())

    async def _send(self) -> None:
        while True:
            order = await self._orders.get()
            await order()

    async def _add(self, sequence: Sequence, sampling: Mapping[str, Any], place: Place | None) -> None:
        request = sequence.request
        self._numbers += 1
        try:
            self._streams[sequence] = await self._llm.add_request(
                f"{self._numbers}",
                tokens_input(list(request.prompt_token_ids), cache_salt=_salt(request)),
                SamplingParams(**sampling, output_kind=RequestOutputKind.DELTA),
                lora_request=None if place is None else _lora(place),
            )
        except Exception as error:
            self._on_outputs([(sequence, error)])

    async def _abort(self, sequence: Sequence) -> None:
        stream = self._streams.pop(sequence, None)
        if stream is not None:
            with suppress(EngineDeadError):
                await self._llm.abort(stream.request_id, internal=True)

    def _listener(self, *_: object) -> StatLoggerBase:
        return _StepListener(self._on_step)

    def _on_step(self, stats: SchedulerStats | None) -> None:
        """vLLM has just put the tokens of one step into the streams. It must not meet what we do with them."""
        self.steps += 1
        self._heard_at_s = time.monotonic()
        if stats is not None:
            self.running, self.kv_share = stats.num_running_reqs, stats.kv_cache_usage
        if outputs := self._taken():
            asyncio.get_running_loop().call_soon(self._on_outputs, outputs)

    def _taken(self) -> Outputs:
        outputs: Outputs = []
        for sequence, stream in list(self._streams.items()):
            try:
                output = stream.get_nowait()
            except Exception as error:
                output = error
            if output is not None:
                outputs.append((sequence, output))
                if isinstance(output, Exception) or output.finished:
                    del self._streams[sequence]
        return outputs


class _StepListener(StatLoggerBase):
    """The one thing that vLLM calls exactly once a step."""

    def __init__(self, on_step: Callable[[SchedulerStats | None], None]) -> None:
        self._on_step = on_step

    def record(self, scheduler_stats: SchedulerStats | None, *_: object, **__: object) -> None:
        self._on_step(scheduler_stats)

    def log_engine_initialized(self) -> None:
        pass


def _salt(request: EngineRequest) -> str | None:
    return request.cache_salt or None


def _lora(place: Place) -> LoRARequest:
    """Never `load_inplace`: vLLM would read the file again for every token."""
    return LoRARequest(lora_name=place.name, lora_int_id=place.lora_id, lora_path=str(place.folder))
