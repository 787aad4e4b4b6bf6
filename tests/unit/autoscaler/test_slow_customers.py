"""Who waits too long in the whole fleet: what several gateways counted, added up."""

from __future__ import annotations

import pytest

from shared.contracts.catalog import GATEWAY_ACTIVITY
from shared.latencies import ERROR, bucket_of
from shared.messages.activity import AdapterActivity, GatewayActivity, PoolActivity
from tests.simulation.speakers import POOL
from tests.unit.autoscaler.test_autoscaler import Stage


async def tells(stage: Stage, gateway_id: str, **counts: dict[float, int]) -> None:
    """A gateway's second: how many first tokens of each adapter came after how long."""
    adapters = {
        name: AdapterActivity(first_tokens={bucket_of(ttft_s): count for ttft_s, count in own.items()})
        for name, own in counts.items()
    }
    pools = {POOL: PoolActivity(adapters=adapters)}
    said = GatewayActivity(gateway_id=gateway_id, sequence=1, interval_s=1.0, pools=pools)
    await stage.gateway.publish(GATEWAY_ACTIVITY, said, gateway_id)


async def test_a_customer_who_is_late_at_two_gateways_together_is_told_of() -> None:
    """Neither gateway alone sees more than one late first token of twenty."""
    stage = Stage()
    await stage.start()
    await stage.seconds(2)
    await tells(stage, "g1", acme={0.2: 19, 3.0: 1}, globex={0.2: 40})
    await tells(stage, "g2", acme={0.2: 8, 3.0: 1})
    await stage.seconds(1)
    fleet = stage.heard[-1]
    assert (fleet.customers, fleet.customers_late) == (2, 1)
    assert [(one.adapter_id, one.first_tokens) for one in fleet.slowest] == [("acme", 29), ("globex", 40)]
    assert fleet.slowest[0].p95_s == pytest.approx(3.0, rel=ERROR)
    text = stage.metrics.exposition().decode()
    assert 'lorafleet_autoscaler_customers{standing="late"} 1.0' in text
    assert 'lorafleet_autoscaler_customer_ttft_p95_seconds{adapter="acme"}' in text
    await stage.seconds(301)
    assert (stage.heard[-1].customers, stage.heard[-1].slowest) == (0, ())
    assert "customer_ttft_p95_seconds{" not in stage.metrics.exposition().decode()
    await stage.autoscaler.stop()
    await stage.console.close()
