from __future__ import annotations

from services.replica_worker.core.slots import SlotTable
from services.replica_worker.reporting.metering import Meters
from shared.messages.identity import AdapterKey
from shared.messages.reports import ReplicaReport
from shared.runtime.metrics import Metrics
from tests.contract.samples import full


def test_loads_and_evictions_are_counted_once_however_often_they_are_shown() -> None:
    metrics, table = Metrics("replica_worker"), SlotTable(1)
    meters, [report] = Meters(metrics), full(ReplicaReport)
    for number in range(3):
        key = AdapterKey(adapter_id=f"acme-{number}", digest=f"{number:064x}")
        table.acquire(key, now_s=float(number))
        table.finish_load(0, now_s=float(number))
        table.release(0, key, now_s=float(number))
        meters.show(report, table)
        meters.show(report, table)
    shown = metrics.exposition().decode()
    assert "lorafleet_replica_worker_slot_loads_total 3.0" in shown
    assert "lorafleet_replica_worker_slot_evictions_total 2.0" in shown
