"""What the gateway knows of the replicas: members, last reports, residency, and what it sent since."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from services.gateway.core.pool import Pool
from services.gateway.core.quarantine import Quarantine, QuarantinePolicy
from services.gateway.core.replica import Replica, Seat
from services.gateway.core.residents import Residents
from services.gateway.core.sends import Sends
from shared.messages.desired import Membership, OwnerCount
from shared.messages.identity import AdapterKey
from shared.messages.reports import ReplicaReport, Residency

DEFAULT_OWNERS = 2
AHEAD_AT_ONCE = 500
"""Adapters ranked while other work waits, for a few milliseconds: at each tick, for as long as any are expected."""
_USUAL = QuarantinePolicy()


class Fleet:
    """Folded from watches and telemetry; the times are the moments when this gateway heard something, or wants to
    know something, and never go back."""

    def __init__(self, fresh_s: float, quarantine: QuarantinePolicy = _USUAL) -> None:
        self._fresh_s = fresh_s
        self._pools: dict[str, Pool] = {}
        self._owners: dict[str, OwnerCount] = {}
        self._replicas: dict[str, Replica] = {}
        self._reports: deque[tuple[float, Replica]] = deque()
        """When each report ceases to count, oldest first."""
        self._heard_at_s: dict[str, float] = {}
        self._deaf_until_s = 0.0
        self._residents = Residents()
        self._quarantine = Quarantine(quarantine)

    def put_membership(self, pool_id: str, membership: Membership | None) -> None:
        pool = self._pools.get(pool_id)
        if membership is None:
            if pool is not None:
                self._pools.pop(pool_id).close()
        elif pool is None or membership.epoch >= pool.epoch:
            self._pools.setdefault(pool_id, Pool(pool_id)).put(membership, self._replica)

    def put_owner_count(self, pool_id: str, count: OwnerCount | None) -> None:
        if count is None:
            self._owners.pop(pool_id, None)
        elif (known := self._owners.get(pool_id)) is None or count.epoch >= known.epoch:
            self._owners[pool_id] = count

    def on_report(self, report: ReplicaReport, now_s: float) -> None:
        self._heard_at_s[report.replica_id] = now_s
        self._age(now_s)
        replica = self._replica(report.replica_id)
        if replica.incarnation not in ("", report.incarnation):
            self._quarantine.forget(report.replica_id)
        replica.tell(report, now_s)
        self._reports.append((replica.fresh_until_s, replica))

    def on_heard(self, replica_id: str, now_s: float) -> None:
        """Anything else that only a living replica says."""
        self._heard_at_s[replica_id] = now_s

    def on_unanswered(self, replica_id: str) -> None:
        """Nobody serves what it is asked: nothing more is sent there until it reports again."""
        self._replica(replica_id).grow_stale()

    def on_deaf(self, now_s: float) -> None:
        """Nobody can be heard until now, so nobody's silence counts until now."""
        self._deaf_until_s = now_s

    def is_silent(self, replica_id: str, now_s: float) -> bool:
        """Whether a replica that must speak every second has not for too long."""
        heard_at_s = self._heard_at_s.get(replica_id, self._deaf_until_s)
        return now_s - max(heard_at_s, self._deaf_until_s) > self._fresh_s

    def on_residency(self, message: Residency, now_s: float) -> None:
        self.on_heard(message.replica_id, now_s)
        in_slots = self._residents.hear(self._replica(message.replica_id), message)
        self._quarantine.healed(message.replica_id, in_slots)

    def expect(self, pool_id: str, adapter_id: str) -> None:
        """The adapter may be asked for soon."""
        self._pools.setdefault(pool_id, Pool(pool_id)).rankings.expect(adapter_id)

    def rank_ahead(self, most: int) -> int:
        """Rank so many adapters that may be asked for, so that the first request for one need not wait for that.
        Returns how many it were: fewer if that was all."""
        ranked = 0
        for pool in self._pools.values():
            ranked += pool.rankings.rank_ahead(most - ranked)
        return ranked

    def on_load_failed(self, replica_id: str, adapter: AdapterKey, now_s: float) -> float:
        """A replica refused a request because it could not load the adapter. Returns until when it is left alone with
        it: the longer, the more often in a row."""
        return self._quarantine.failed(replica_id, adapter, now_s)

    def on_loaded(self, replica_id: str, adapter: AdapterKey) -> None:
        """It accepted a request for the adapter."""
        self._quarantine.healed(replica_id, (adapter,))

    def forget_older_than(self, at_s: float) -> list[str]:
        """Drop what replicas said that have been silent since then, so that names which never come back
        take no memory. Returns their names."""
        gone = [name for name, heard_at_s in self._heard_at_s.items() if max(heard_at_s, self._deaf_until_s) < at_s]
        for name in gone:
            del self._heard_at_s[name]
            self._quarantine.forget(name)
            replica = self._replica(name)
            self._residents.forget(replica)
            replica.forget()
        for name, replica in list(self._replicas.items()):
            if name not in self._heard_at_s and not replica.seats and not replica.sends.promised_tokens:
                del self._replicas[name]
        self._quarantine.forget_older_than(at_s)
        return gone

    def promised_tokens(self) -> dict[str, int]:
        """Per replica, what was sent and is in none of its reports yet."""
        promised = {name: replica.sends.promised_tokens for name, replica in self._replicas.items()}
        return {name: tokens for name, tokens in promised.items() if tokens}

    def sends(self, replica_id: str) -> Sends:
        return self._replica(replica_id).sends

    def owners(self, pool_id: str, adapter_id: str) -> int:
        count = self._owners.get(pool_id)
        return count.exceptions.get(adapter_id, count.owners) if count is not None else DEFAULT_OWNERS

    def pools(self, pool_ids: Iterable[str], now_s: float) -> list[Pool]:
        """Those of the pools that there are, as they stand at `now_s`."""
        self._age(now_s)
        return [pool for pool_id in pool_ids if (pool := self._pools.get(pool_id)) is not None]

    def holders(self, pool: Pool, adapter: AdapterKey, tier: str) -> list[Seat]:
        """The pool's seats whose replicas have the adapter in this tier, "gpu" or "ram", in order of their ids."""
        named = sorted(name for name, found in self._residents.of(adapter).items() if found == tier)
        seats = (pool.seats.get(name) for name in named)
        return [seat for seat in seats if seat is not None and seat.replica.tier(adapter) == tier]

    def quarantined(self, adapter: AdapterKey, now_s: float) -> frozenset[str]:
        return self._quarantine.of(adapter, now_s)

    def quarantined_until_s(self, replica_id: str, adapter: AdapterKey) -> float:
        return self._quarantine.until_s(replica_id, adapter)

    def _age(self, now_s: float) -> None:
        """With every report, too: there may be no question for days."""
        while self._reports and self._reports[0][0] < now_s:
            _, replica = self._reports.popleft()
            if replica.fresh and replica.fresh_until_s < now_s:
                replica.grow_stale()

    def _replica(self, replica_id: str) -> Replica:
        replica = self._replicas.get(replica_id)
        if replica is None:
            replica = self._replicas[replica_id] = Replica(replica_id, self._fresh_s)
        return replica
