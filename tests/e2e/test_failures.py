"""Replicas die, files rot, objects vanish: what must then hold."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx
from openai import APIError, OpenAI

from infra.local.temporary import TemporaryFleet
from tests.support.asking import ask, stream, wait_answers
from tests.support.pipeline import Pipeline
from tests.support.waiting import eventually


class Reader(threading.Thread):
    """One stream read in a thread of its own: its text, or the error that it ended with."""

    def __init__(self, client: OpenAI, model: str, prompt: str) -> None:
        super().__init__(daemon=True)
        self._ask = (client, model, prompt)
        self.begun = threading.Event()
        self.deltas = 0
        self.text = ""
        self.error: Exception | None = None

    def run(self) -> None:
        client, model, prompt = self._ask
        try:
            for delta in stream(client, model, prompt, max_tokens=1500):
                self.deltas += 1
                self.text += delta
                self.begun.set()
        except (APIError, httpx.HTTPError) as error:
            self.error = error
        self.begun.set()


def wait_ready(pipeline: Pipeline, replica_id: str) -> None:
    eventually(lambda: (pipeline.replica(replica_id) or {}).get("ready"), f"{replica_id} to be ready")


def held_by(pipeline: Pipeline, replica_id: str) -> set[str]:
    """The adapters that a replica holds in any tier."""
    summary = pipeline.replica(replica_id)
    return {entry["adapter_id"] for entry in summary["adapters"]} if summary else set()


def canaries_of(canaries: dict[str, str]) -> list[str]:
    return [f"canary-{at}" for at in range(len(canaries))]


def test_c33_a_killed_replica_costs_no_stream_and_comes_back_warm(
    fleet: TemporaryFleet, pipeline: Pipeline, acme: OpenAI, canaries: dict[str, str]
) -> None:
    alias, marker = next(iter(canaries.items()))
    wait_answers(acme, alias, marker)
    eventually(lambda: held_by(pipeline, "replica-0") >= set(canaries_of(canaries)), "replica-0 to hold every canary")
    readers = [Reader(acme, pipeline.base["name"], f"Tell me story number {at}.") for at in range(20)]
    for reader in readers:
        reader.start()
    for reader in readers[:10]:
        assert reader.begun.wait(30)
    gone = fleet.kill("replica-0")
    for reader in readers:
        reader.join(60)
    assert not any(reader.is_alive() for reader in readers)
    # Whoever was on the dead one moved to the other replica, which went on from what it had read.
    assert [reader.error for reader in readers] == [None] * len(readers)
    assert all(reader.text for reader in readers)
    assert 'lorafleet_gateway_failovers_total{cause="lost"}' in httpx.get(f"{fleet.connection.url}/metrics").text
    store_before = _move_away(fleet.layout.store)
    try:
        eventually(lambda: fleet.pid("replica-0") != gone, "the supervisor to start replica-0 again")
        wait_ready(pipeline, "replica-0")
        eventually(lambda: held_by(pipeline, "replica-0") >= set(canaries_of(canaries)), "replica-0 to be warm again")
        for each, text in canaries.items():
            wait_answers(acme, each, text)
    finally:
        store_before.rename(fleet.layout.store)


def test_a_flipped_byte_on_disk_is_noticed_and_fetched_again(
    fleet: TemporaryFleet, pipeline: Pipeline, acme: OpenAI, canaries: dict[str, str]
) -> None:
    alias, marker = list(canaries.items())[2]
    record = pipeline.wait_status("canary-2", "active")
    files = [path for name in ("replica-0", "replica-1") for path in fleet.layout.cache(name).rglob("*")]
    damaged = [path for path in files if record["digest"] in path.name and path.is_file()]
    assert damaged
    for path in damaged:
        content = bytearray(path.read_bytes())
        content[-1] ^= 0xFF
        path.write_bytes(content)
    for name in ("replica-0", "replica-1"):
        gone = fleet.kill(name)
        eventually(lambda name=name, gone=gone: fleet.pid(name) != gone, f"{name} to be started again")
        wait_ready(pipeline, name)
    wait_answers(acme, alias, marker)


def test_a_deleted_store_object_leaves_what_disks_hold_serving(
    fleet: TemporaryFleet, pipeline: Pipeline, acme: OpenAI, canaries: dict[str, str]
) -> None:
    alias, marker = list(canaries.items())[3]
    wait_answers(acme, alias, marker)
    record = pipeline.wait_status("canary-3", "active")
    objects = [path for path in fleet.layout.store.rglob("*") if record["digest"] in path.name and path.is_file()]
    assert objects
    kept = {path: path.read_bytes() for path in objects}
    for path in objects:
        path.unlink()
    try:
        for each in canaries:
            ask(acme, each)
        assert ask(acme, alias) == marker
    finally:
        for path, content in kept.items():
            path.write_bytes(content)


def test_c76_a_client_that_leaves_stops_its_generation(fleet: TemporaryFleet, pipeline: Pipeline, acme: OpenAI) -> None:
    def in_flight() -> int:
        replicas = [pipeline.replica("replica-0"), pipeline.replica("replica-1")]
        return sum(one["tokens_in_flight"] for one in replicas if one is not None)

    deltas = stream(acme, pipeline.base["name"], "Write a very long story.", max_tokens=1900)
    for _ in range(3):
        next(deltas)
    eventually(in_flight, "a replica to report the request")
    deltas.close()  # type: ignore[attr-defined]
    eventually(lambda: in_flight() == 0, "both replicas to have nothing in flight")


def _move_away(store: Path) -> Path:
    return store.rename(store.with_name("store-out-of-reach"))
