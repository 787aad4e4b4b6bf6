"""What endpoint pickers make of a replica: read here as they read it."""

from __future__ import annotations

from pathlib import Path

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from services.replica_worker.reporting.picking import MOST_NAMES, Picking
from shared.messages.reports import ReplicaReport
from shared.runtime.metrics import Metrics
from tests.contract.samples import full
from tests.support.replica import BASE_HASH, rig
from tests.support.unruly_engine import unruly


class Picker:
    """Of a family whose series differ in their labels it believes the one with the newest value; lists are split at
    commas, and the slots are a number."""

    def __init__(self, metrics: Metrics) -> None:
        families = text_string_to_metric_families(metrics.exposition().decode())
        self._families = {family.name: family.samples for family in families}

    def gauge(self, name: str) -> float:
        [sample] = self._families[name]
        return sample.value

    def adapters(self) -> tuple[list[str], list[str], int]:
        newest = max(self._families["vllm:lora_requests_info"], key=lambda sample: sample.value).labels
        running, waiting = (
            [name for name in newest[f"{which}_lora_adapters"].split(",") if name] for which in ("running", "waiting")
        )
        return running, waiting, int(newest["max_lora"])


def report(**changes: object) -> ReplicaReport:
    [one] = full(ReplicaReport)
    return msgspec.structs.replace(one, **changes)


def test_a_picker_finds_the_load_and_the_adapters_of_now() -> None:
    metrics = Metrics("replica_worker")
    picking = Picking(metrics)
    said = report(slots=4, running=3, queue_depth=2, kv_used_tokens=48, kv_total_tokens=64)
    picking.show(said, ["a", "b"], ["c", "c", "a"], 1_000.5)
    picking.show(said, ["a", "c"], [], 1_001.5)
    picker = Picker(metrics)
    assert (picker.gauge("vllm:num_requests_running"), picker.gauge("vllm:num_requests_waiting")) == (3, 2)
    assert picker.gauge("vllm:kv_cache_usage_perc") == picker.gauge("vllm:gpu_cache_usage_perc") == 0.75
    assert picker.adapters() == (["a", "c"], [], 4)


def test_before_the_first_report_there_are_no_adapters_and_no_load() -> None:
    metrics = Metrics("replica_worker")
    Picking(metrics)
    assert "vllm:lora_requests_info{" not in metrics.exposition().decode()
    assert Picker(metrics).gauge("vllm:kv_cache_usage_perc") == 0


def test_labels_are_bounded_and_those_who_run_come_first() -> None:
    metrics = Metrics("replica_worker")
    picking = Picking(metrics)
    many = [f"adapter-{number}" for number in range(20_000)]
    picking.show(report(kv_total_tokens=0), many, many * 2, 1.0)
    running, waiting, _ = Picker(metrics).adapters()
    assert (running, waiting) == (many[:MOST_NAMES], many[:MOST_NAMES])


async def test_a_replica_shows_who_runs_and_who_waits_for_its_slot(tmp_path: Path, model_folder: Path) -> None:
    engine = unruly(BASE_HASH, slots=1)
    async with rig(tmp_path, model_folder, engine=engine, slots=1) as small:
        records = [await small.register(f"acme-{at}") for at in range(2)]
        engine.hold()
        running = await small.caller.send(small.request("runs", records[0]))
        await small.caller.wait(lambda: running.accepted is not None)
        await small.caller.send(small.request("waits", records[1]))
        await small.until(lambda: small.replica.generation.dispatcher.waiting == 1)
        await small.clock.advance(1.0)
        await small.replica.reporter.send()
        picker = Picker(small.metrics)
        assert picker.adapters() == (["acme-0"], ["acme-1"], 1)
        assert picker.gauge("vllm:num_requests_waiting") == 1
        engine.go()
