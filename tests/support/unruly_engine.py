"""The timed engine with a brake and with faults on order."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Sequence
from pathlib import Path

from services.replica_worker.engine.port import BASE_SLOT, AdapterSpec, EngineFailed, HostAdapter, Probe
from services.replica_worker.engine.sequence import Sequence as Row
from services.replica_worker.engine.timed.engine import TimedAdapter, TimedEngine
from services.replica_worker.engine.timed.policy import TimedPolicy
from services.replica_worker.engine.timed.stream import BASE_DIGEST, probe_of


class UnrulyEngine(TimedEngine):
    """`hold()` stops it between two steps, `allow(n)` lets it make n more, `go()` lets it run. Probes do not wait
    for that, so that adapters can be proven, unless `probes_wait`; they are answered once `probe_gate` is done.

    `fail(call, error)` makes the next `call` ("read", "load", "clear", "probe", "fingerprint") raise.
    Loads wait while `copying` is cleared. `no_effect`: adapters are probed as if they were the base.
    `wrong_weights` makes every load put other weights into the slot, as a broken copy would; `wrong_loads` only so
    many. `slots_off_by` makes it compute every row with the slot so many places on.
    """

    def __init__(self, policy: TimedPolicy) -> None:
        super().__init__(policy)
        self.faults: dict[str, deque[Exception]] = defaultdict(deque)
        self.calls: dict[str, int] = defaultdict(int)
        self.broken: EngineFailed | None = None
        self.copying = asyncio.Event()
        self.copying.set()
        self.wrong_weights = False
        self.wrong_loads = 0
        self.slots_off_by = 0
        self.no_effect = False
        self.probes_wait = False
        self.probe_gate: asyncio.Future[None] | None = None
        self._allowed: float = float("inf")
        self._moved = asyncio.Event()

    def fail(self, call: str, error: Exception, times: int = 1) -> None:
        self.faults[call].extend([error] * times)

    def hold(self) -> None:
        self._allowed = 0

    def allow(self, steps: int) -> None:
        self._allowed = steps
        self._moved.set()

    def go(self) -> None:
        self._allowed = float("inf")
        self._moved.set()

    def held_digest(self, slot: int) -> str | None:
        """Whose weights really are in a slot."""
        return self._digests.get(slot)

    def break_down(self) -> None:
        """As a device does that is lost: every request ends with an error, and nothing can be called any more."""
        self.broken = EngineFailed("planted")
        self._desk.fail(self.broken)

    async def read(self, path: Path, spec: AdapterSpec) -> TimedAdapter:
        self._meet("read")
        return await super().read(path, spec)

    async def load(self, slot: int, adapter: HostAdapter) -> None:
        self._meet("load")
        await self.copying.wait()
        await super().load(slot, adapter)
        if self.wrong_weights or self.wrong_loads:
            self.wrong_loads = max(0, self.wrong_loads - 1)
            self._digests[slot] = "0" * 64

    async def clear(self, slot: int) -> None:
        self._meet("clear")
        await super().clear(slot)

    def probe(self, prompt_token_ids: Sequence[int], slot: int, top: int = 20) -> asyncio.Future[Probe]:
        self._meet("probe")
        shown = BASE_SLOT if self.no_effect else slot
        if self.probe_gate is not None:
            return asyncio.ensure_future(self._after(self.probe_gate, super().probe(prompt_token_ids, shown, top)))
        if self._allowed >= 1 or self.probes_wait:
            return super().probe(prompt_token_ids, shown, top)
        answer = asyncio.get_running_loop().create_future()
        answer.set_result(probe_of(self._policy, self._digests.get(shown, BASE_DIGEST), prompt_token_ids, top))
        return answer

    async def fingerprint(self, slot: int) -> str:
        self._meet("fingerprint")
        return await super().fingerprint(slot)

    def _digest(self, sequence: Row) -> str:
        slot = sequence.request.slot
        if slot == BASE_SLOT or not self.slots_off_by:
            return super()._digest(sequence)
        return self._digests.get((slot + self.slots_off_by) % self._info.slots, BASE_DIGEST)

    def _started(self) -> None:
        if self.broken is not None:
            raise self.broken
        super()._started()

    async def _step(self) -> None:
        while self._allowed < 1:
            self._moved.clear()
            await self._moved.wait()
        self._allowed -= 1
        await super()._step()

    async def _after(self, gate: asyncio.Future[None], probe: asyncio.Future[Probe]) -> Probe:
        found = await probe
        await asyncio.shield(gate)
        return found

    def _meet(self, call: str) -> None:
        self.calls[call] += 1
        if self.faults[call]:
            raise self.faults[call].popleft()


def unruly(base_hash: str, slots: int = 4, **policy: float) -> UnrulyEngine:
    instant = TimedPolicy.instant(base_hash, slots=slots)
    return UnrulyEngine(TimedPolicy(**{**{f: getattr(instant, f) for f in instant.__struct_fields__}, **policy}))
