"""What the autoscaler sees before it decides: the bus's facts, the actuator's answers, and who has outgrown a pool."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from services.autoscaler.carrying import Carrier
from services.autoscaler.core.cost import CostPolicy
from services.autoscaler.core.demand import DemandPolicy
from services.autoscaler.core.fleet import merged_loads
from services.autoscaler.core.fold import loads
from services.autoscaler.core.load import PoolLoad
from services.autoscaler.core.memory import PoolDecision, PoolMemory
from services.autoscaler.core.merged import Market, MergedPolicy, MergedPool, merged_pools, orphaned, recalled
from services.autoscaler.core.orders import PoolSpec, ScaleOrder
from services.autoscaler.core.policy import ScalePolicy
from services.autoscaler.io.heard import Heard
from shared.messages.pools import is_merged, merged_pool_id
from shared.runtime.clock import Clock

_DAY_S = 86_400.0


class AutoscalerPolicy(msgspec.Struct, frozen=True, kw_only=True):
    scale: ScalePolicy = ScalePolicy()
    windows: DemandPolicy = DemandPolicy()
    cost: CostPolicy = CostPolicy()
    merged: MergedPolicy = MergedPolicy()
    fill_s: float = 1.5


class Lookout:
    def __init__(self, clock: Clock, policy: AutoscalerPolicy, heard: Heard, carrier: Carrier) -> None:
        self.heard = heard
        self.carrier = carrier
        self._clock = clock
        self._policy = policy
        self._merged: dict[str, MergedPool] = {}

    def recall(self, memories: Mapping[str, PoolMemory]) -> None:
        """Take up the merged pools that were wished for before a restart."""
        for record in self.heard.records.values():
            pool_id = merged_pool_id(record.pool_id, record.digest)
            if pool_id in memories:
                self._merged[pool_id] = recalled(pool_id, record, wanted=bool(memories[pool_id].desired))

    def spec(self, pool_id: str) -> PoolSpec:
        pool = self._merged.get(pool_id)
        return PoolSpec(pool_id=pool_id, merged=pool.key if pool else None)

    def order(self, decision: PoolDecision, epoch: int) -> ScaleOrder:
        return ScaleOrder(
            pool=self.spec(decision.pool_id),
            desired=decision.exist,
            start=decision.start,
            remove=decision.remove,
            reason=decision.reason,
            epoch=epoch,
        )

    def over(self, loads: Mapping[str, PoolLoad]) -> list[str]:
        """The merged pools that nobody wants and of whose replicas nobody has heard for long."""
        there = {name for name, load in loads.items() if load.existing or load.replicas or self.carrier.is_unsure(name)}
        return [pool_id for pool_id, pool in self._merged.items() if pool.over and pool_id not in there]

    def forget(self, pool_id: str) -> None:
        del self._merged[pool_id]
        self.carrier.forget(pool_id)

    async def loads(self, memories: Mapping[str, PoolMemory]) -> dict[str, PoolLoad]:
        """Every pool that somebody reports of, that is wanted, or of which the actuator knows replicas."""
        now_s, facts = self._clock.now_s(), self.heard.facts()
        pools = loads(facts, now_s, self._policy.windows)
        if self.carrier.starts_merged and self._policy.merged.enabled:
            pools = self._with_merged(pools, memories, now_s)
        await self.carrier.meet([self.spec(pool_id) for pool_id in sorted(memories.keys() | pools.keys())])
        for pool_id in memories.keys() - pools.keys():
            if self.carrier.existing(pool_id, frozenset()) is not None:
                pools[pool_id] = PoolLoad(pool_id=pool_id, held=facts.held, wanted=self._wants(pool_id))
        return {pool_id: self._seen(load) for pool_id, load in pools.items()}

    def _wants(self, pool_id: str) -> bool:
        merged = self._merged.get(pool_id)
        return merged.wanted if merged else not is_merged(pool_id)

    def _with_merged(
        self, pools: Mapping[str, PoolLoad], memories: Mapping[str, PoolMemory], now_s: float
    ) -> dict[str, PoolLoad]:
        # Level-triggered: whatever was missed, a merged pool that is nobody's is found at every look, and goes.
        for pool_id in memories.keys() | pools.keys():
            if is_merged(pool_id) and pool_id not in self._merged and self.carrier.is_known(pool_id):
                self._merged[pool_id] = orphaned(pool_id)
        rates = {pool_id: memory.pace.rate for pool_id, memory in memories.items() if not is_merged(pool_id)}
        market = Market(customers=self.heard.customers, rates=rates, records=self.heard.records)
        self._merged = merged_pools(self._merged, market, now_s, self._policy.merged, self._policy.windows)
        return merged_loads(pools, self._merged, rates)

    def _seen(self, load: PoolLoad) -> PoolLoad:
        """The load with what the actuator says."""
        return msgspec.structs.replace(
            load,
            existing=self.carrier.existing(load.pool_id, frozenset(load.replicas)),
            removal_order=self.carrier.removal_order(load.pool_id),
            day_s=self._clock.wall_s() % _DAY_S,
        )
