"""Processes that want one role, in virtual time: their clocks run apart, they are paused at any await, what they send
is late or goes unconfirmed, and the bus is away now and then. Whoever leads keeps writing one record in the role."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from loadtest.virtual_time import LoopClock
from shared.bus.memory import MemoryBroker
from shared.bus.port import BusUnavailable, Change, StateStore
from shared.contracts.catalog import LEASE, OWNER_COUNT
from shared.leadership.leader import Leader
from shared.leadership.ledger import Ledger, NotLeading, Superseded
from shared.messages.desired import OwnerCount

ROLE = "placement"
TIME = LoopClock()
SKEW = 0.1
LOOK_S = 0.02
"""How often the rules are checked."""


class Weather(msgspec.Struct, frozen=True, kw_only=True):
    """Chances are per second, or per call for those of messages."""

    pauses: float = 0.1
    longest_pause_s: float = 12.0
    outages: float = 0.02
    longest_outage_s: float = 8.0
    slow: float = 0.05
    longest_delay_s: float = 4.0
    unconfirmed: float = 0.03


CALM = Weather(pauses=0.0, outages=0.0, slow=0.0, unconfirmed=0.0)


class SkewedClock:
    def __init__(self, rate: float, start_s: float) -> None:
        self._rate = rate
        self._start_s = start_s

    def now_s(self) -> float:
        return self._start_s + self._rate * TIME.now_s()

    def wall_s(self) -> float:
        return self.now_s()

    async def sleep_s(self, seconds: float) -> None:
        await TIME.sleep_s(max(0.0, seconds) / self._rate)


class Process:
    """One that wants the role. Paused, it goes on from no await; what it sent before arrives all the same."""

    def __init__(self, world: World, name: str, rate: float) -> None:
        self.name = name
        self.clock = SkewedClock(rate, world.draw.uniform(0.0, 1000.0))
        self.alive = asyncio.Event()
        self.alive.set()
        bus = world.broker.connect(ROLE)
        lease: Any = Post(world, self, bus.state(LEASE))
        record: Any = Post(world, self, bus.state(OWNER_COUNT))
        self.leader = Leader(lease, self.clock, role=ROLE, holder=name)
        self.ledger: Ledger[OwnerCount] = Ledger("owner_count", record, self.leader.may_act)
        self._epoch = 0
        self._wrote = 0

    @property
    def may_act(self) -> bool:
        """By its own clock, which goes on while it is paused."""
        return self.leader.may_act(self.leader.standing.epoch)

    async def run(self) -> None:
        self.leader.contend()
        await asyncio.gather(self._every(self.leader.turn_s, self.leader.turn), self._every(0.1, self._act))

    async def _every(self, interval_s: float, action: Callable[[], Awaitable[object]]) -> None:
        while True:
            await self.alive.wait()
            await action()
            await self.clock.sleep_s(interval_s)

    async def _act(self) -> None:
        """As a service does: reads what its predecessor left, then writes as long as it may."""
        standing = self.leader.standing
        if not standing.leads:
            return
        try:
            if standing.epoch != self._epoch:
                await self.ledger.read()
                self.leader.heed(self.ledger.newest_epoch)
                self._epoch = standing.epoch
            self._wrote += 1
            await self.ledger.write(OwnerCount(pool_id="p", owners=self._wrote, epoch=self._epoch), "p")
        except (BusUnavailable, NotLeading):
            return
        except Superseded as error:
            self.leader.heed(error.epoch + 1)


class Post:
    """The way between a process and a bucket."""

    def __init__(self, world: World, process: Process, store: StateStore[Any]) -> None:
        self._world = world
        self._process = process
        self._store = store

    async def get(self, *ids: str) -> Change[Any] | None:
        return await self._carry(lambda: self._store.get(*ids))

    async def entries(self) -> list[Change[Any]]:
        return await self._carry(self._store.entries)

    async def put(self, value: Any, *ids: str, expected_revision: int | None = None) -> int:
        async def arrive() -> int:
            revision = await self._store.put(value, *ids, expected_revision=expected_revision)
            self._world.arrived(self._process, value)
            return revision

        return await self._carry(arrive)

    async def _carry(self, act: Callable[[], Awaitable[Any]]) -> Any:
        """What was sent arrives, whether or not its sender still waits; the sender hears of it, or not."""
        await self._process.alive.wait()
        if self._world.is_away:
            raise BusUnavailable("the bus is away")
        sent = asyncio.create_task(self._travel(act))
        self._world.travelling.add(sent)
        sent.add_done_callback(self._world.landed)
        try:
            answer = await asyncio.shield(sent)
        except Exception:
            await self._process.alive.wait()
            raise
        await TIME.sleep_s(self._world.delay_s())
        await self._process.alive.wait()
        if self._world.happens(self._world.weather.unconfirmed):
            raise BusUnavailable("no confirmation came")
        return answer

    async def _travel(self, act: Callable[[], Awaitable[Any]]) -> Any:
        await TIME.sleep_s(self._world.delay_s())
        if self._world.is_away:
            raise BusUnavailable("the bus went away")
        return await act()


class World:
    """`overlaps` are the moments at which two might act; `written` is (epoch, who) of each write of the record that
    was accepted, in order; `led` who might act with an epoch."""

    def __init__(self, seed: int, rates: tuple[float, ...], weather: Weather) -> None:
        self.draw = random.Random(seed)
        self.weather = weather
        self.broker = MemoryBroker()
        self.is_away = False
        self.travelling: set[asyncio.Task[Any]] = set()
        self.written: list[tuple[int, str]] = []
        self.led: dict[int, set[str]] = {}
        self.overlaps: list[tuple[float, list[str]]] = []
        self.processes = [Process(self, f"p{number}", rate) for number, rate in enumerate(rates)]
        self._running: dict[str, asyncio.Task[None]] = {}

    def happens(self, chance: float) -> bool:
        return self.draw.random() < chance

    def delay_s(self) -> float:
        return self.draw.uniform(0.0, self.weather.longest_delay_s if self.happens(self.weather.slow) else 0.02)

    def landed(self, sent: asyncio.Task[Any]) -> None:
        """Its sender may have given up waiting, and then nobody looks at how it ended."""
        self.travelling.discard(sent)
        if not sent.cancelled():
            sent.exception()

    def arrived(self, process: Process, value: Any) -> None:
        if isinstance(value, OwnerCount):
            self.written.append((value.epoch, process.name))

    async def pass_s(self, seconds: float) -> None:
        """The rules are checked all the time."""
        until_s = TIME.now_s() + seconds
        for process in self.processes:
            if process.name not in self._running:
                self._running[process.name] = asyncio.create_task(process.run())
        while TIME.now_s() < until_s:
            self._look()
            self._brew()
            await TIME.sleep_s(LOOK_S)

    def kill(self, process: Process) -> None:
        self.processes.remove(process)
        self._running.pop(process.name).cancel()

    async def end(self) -> None:
        for task in [*self._running.values(), *self.travelling]:
            task.cancel()
        await asyncio.gather(*self._running.values(), *self.travelling, return_exceptions=True)

    @property
    def leaders(self) -> list[Process]:
        return [process for process in self.processes if process.may_act]

    def _look(self) -> None:
        leaders = self.leaders
        for process in leaders:
            self.led.setdefault(process.leader.standing.epoch, set()).add(process.name)
        if len(leaders) > 1:
            self.overlaps.append((TIME.now_s(), [process.name for process in leaders]))

    def _brew(self) -> None:
        for process in self.processes:
            if self.happens(self.weather.pauses * LOOK_S):
                self.pause(process, self.draw.uniform(0.0, self.weather.longest_pause_s))
        if self.happens(self.weather.outages * LOOK_S):
            self.take_away(self.draw.uniform(0.0, self.weather.longest_outage_s))

    def pause(self, process: Process, seconds: float) -> None:
        process.alive.clear()
        asyncio.get_running_loop().call_later(seconds, process.alive.set)

    def take_away(self, seconds: float) -> None:
        self.is_away = True
        asyncio.get_running_loop().call_later(seconds, setattr, self, "is_away", False)
