"""The other half of a gateway's fleet, for timing its decisions: replicas that report, hold adapters, end requests."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable

import msgspec

from services.gateway.core.fleet import Fleet
from shared.messages.desired import Member, Membership
from shared.messages.identity import AdapterKey
from shared.messages.reports import ReplicaReport, Residency, ResidencyEntry

POOL = "0123456789ab-r16"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`rate` requests a virtual second, which run for so long that `utilisation` of all rows is in use."""

    replicas: int = 200
    adapters: int = 10_000
    decisions: int = 20_000
    rate: float = 400.0
    rows: int = 32
    slots: int = 250
    utilisation: float = 0.8
    seed: int = 5

    @property
    def lasts_s(self) -> float:
        return self.utilisation * self.replicas * self.rows / self.rate


class _Held:
    """What one replica has to do, and its slots, the one used longest ago first."""

    def __init__(self, replica_id: str) -> None:
        self.replica_id = replica_id
        self.tokens = self.requests = 0
        self.reports = self.residencies = 0
        self.slots: dict[AdapterKey, None] = {}


class RoutingLoad:
    """Everybody reports once a second, one after the other, and says at once what came into a slot or left it."""

    def __init__(self, plan: Plan) -> None:
        self.fleet = Fleet(fresh_s=3.0)
        self._plan = plan
        self._chance = random.Random(plan.seed)
        self._replicas = [_Held(f"replica-{number}") for number in range(plan.replicas)]
        self._by_name = {replica.replica_id: replica for replica in self._replicas}
        self._running: list[tuple[float, str, str, int]] = []
        self._turn = 0
        self._put_members()
        self.began_s = 1.0
        """Everybody has reported."""
        self.pass_time(self.began_s)

    def leave(self) -> None:
        """One replica is no longer a member; what it has to do it finishes."""
        self._replicas.pop()
        self._put_members()

    def pass_time(self, now_s: float) -> None:
        """All reports that are due, and the ends of requests."""
        for turn in range(self._turn, int(now_s * self._plan.replicas)):
            self._report(self._replicas[turn % len(self._replicas)], now_s)
            self._turn += 1
        while self._running and self._running[0][0] <= now_s:
            _, request_id, name, tokens = heapq.heappop(self._running)
            self._by_name[name].tokens -= tokens
            self._by_name[name].requests -= 1
            self.fleet.sends(name).ended(request_id)

    def send(self, name: str, adapter: AdapterKey | None, request: tuple[str, int], now_s: float) -> None:
        """`request` is its id and what it promises."""
        request_id, tokens = request
        replica = self._by_name[name]
        self.fleet.sends(name).sent(request_id, tokens)
        self.fleet.sends(name).answered(request_id)
        replica.tokens += tokens
        replica.requests += 1
        ends_at_s = now_s + self._chance.expovariate(1.0 / self._plan.lasts_s)
        heapq.heappush(self._running, (ends_at_s, request_id, name, tokens))
        if adapter is not None:
            self._bring_up(replica, adapter, now_s)

    def _put_members(self) -> None:
        members = tuple(_member(replica.replica_id, self._plan) for replica in self._replicas)
        self.fleet.put_membership(POOL, Membership(pool_id=POOL, epoch=1, revision=1, members=members))

    def _bring_up(self, replica: _Held, adapter: AdapterKey, now_s: float) -> None:
        if adapter in replica.slots:
            replica.slots[adapter] = replica.slots.pop(adapter)
            return
        moved = [(adapter, "gpu")]
        if len(replica.slots) == self._plan.slots:
            oldest = next(iter(replica.slots))
            del replica.slots[oldest]
            moved.append((oldest, "ram"))
        replica.slots[adapter] = None
        self._say(replica, moved, now_s)

    def _say(self, replica: _Held, moved: Iterable[tuple[AdapterKey, str]], now_s: float) -> None:
        replica.residencies += 1
        entries = tuple(ResidencyEntry(adapter_id=key.adapter_id, digest=key.digest, tier=tier) for key, tier in moved)
        message = Residency(
            replica_id=replica.replica_id, incarnation="1", pool_id=POOL, sequence=replica.residencies,
            snapshot=replica.residencies == 1, entries=entries,
        )  # fmt: skip
        self.fleet.on_residency(message, now_s)

    def _report(self, replica: _Held, now_s: float) -> None:
        replica.reports += 1
        report = ReplicaReport(
            replica_id=replica.replica_id, incarnation="1", pool_id=POOL, sequence=replica.reports, ready=True,
            draining=False, base_model_hash="", rank_limit=16, engine="timed", engine_build="",
            slots=self._plan.slots, slots_busy=0, max_rows=self._plan.rows, running=replica.requests, queue_depth=0,
            tokens_in_flight=replica.tokens, tokens_per_s=0.0, evictions_per_min=0.0, loads_per_min=0.0, ram_bytes=0,
            ram_budget_bytes=0, disk_bytes=0, disk_budget_bytes=0,
        )  # fmt: skip
        self.fleet.on_report(report, now_s)


def _member(replica_id: str, plan: Plan) -> Member:
    return Member(
        replica_id=replica_id, incarnation="1", weight=1.0, slots=plan.slots, rank_limit=16, ram_budget_bytes=0,
        disk_budget_bytes=0, ready=True,
    )  # fmt: skip
