"""Whether a replica lets a request in: the worker's own decision, with what it depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadtest.twin.ground import Ground
from loadtest.twin.request import Attempt
from loadtest.twin.scenario import BASE_HASH
from services.replica_worker.core.admission import Door, Refusal, admit
from services.replica_worker.core.pace import TurnedAway
from shared.messages.generation import GenerateRequest, Sampling
from shared.messages.identity import AdapterKey

if TYPE_CHECKING:
    from loadtest.twin.replica import Replica

DEADLINE_S = 60.0
_SAMPLING = Sampling(seed=0)


class Entrance:
    def __init__(self, replica: Replica, ground: Ground) -> None:
        self._replica = replica
        self._ground = ground
        self._turned_away = TurnedAway()

    def refusal_of(self, attempt: Attempt) -> Refusal | None:
        """None: it may come in. Its `tier` is known by now."""
        to_fetch = self._to_fetch(attempt.request.record.key) if attempt.tier == "remote" else []
        refusal = admit(_question(attempt), self._door(to_fetch))
        if to_fetch and refusal is not None and refusal.code == "overloaded":
            self._turned_away.add(self._replica.tiers.pace.wait_s(to_fetch[0]), self._ground.agenda.now_s)
        return refusal

    def _door(self, to_fetch: list[int]) -> Door:
        replica, body = self._replica, self._replica.body
        return Door(
            pool_id=body.pool_id,
            base_model_hash=BASE_HASH,
            only=body.merged,
            not_ready=replica.not_ready,
            draining=replica.draining,
            waiting=replica.waiting,
            fetch_wait_s=replica.tiers.pace.wait_s(sum(to_fetch[1:])) if to_fetch else 0.0,
            turned_away_wait_s=self._turned_away.wait_s(self._ground.agenda.now_s),
            queue_limit=body.queue_limit,
            tokens_in_flight=replica.promises.total,
            tokens_per_s=0.0,
        )

    def _to_fetch(self, key: AdapterKey) -> list[int]:
        """The sizes of its adapter and of all that others wait for; nothing if it is on its way already."""
        replica = self._replica
        coming = {each.request.record.key: each.request.record.size_bytes for each in replica.fetching}
        coming = {other: size for other, size in coming.items() if replica.tier_of(other) == "remote"}
        record = self._ground.registry.records.get(key)
        return [] if key in coming or record is None else [record.size_bytes, *coming.values()]


def _question(attempt: Attempt) -> GenerateRequest:
    """As far as a door looks at it."""
    record = attempt.request.record
    return GenerateRequest(
        request_id=attempt.id,
        gateway_id="",
        tenant_id=record.tenant_id,
        pool_id=attempt.pool_id,
        base_model_hash=record.base_model_hash,
        messages=(),
        sampling=_SAMPLING,
        adapter_id=record.adapter_id,
        digest=record.digest,
        deadline_s=DEADLINE_S,
    )
