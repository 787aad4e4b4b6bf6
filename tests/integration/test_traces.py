"""One trace from the client's request to the replica's last token, and none where nothing is traced."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shared.messages.generation import GenerateRequest
from shared.runtime.settings import SettingsError
from shared.runtime.tracing import NO_SPAN, NO_TRACER, tracer_to
from shared.runtime.tracing_otel import OtelTracer
from tests.support.gateway_world import body, gateway_world
from tests.support.replica import rig
from tests.support.scripted_replica import ScriptedReplica, says
from tests.support.tiny_model import tiny_model_once

PATH = "/v1/chat/completions"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_once(tmp_path_factory)


class Traces:
    """What two services exported, as a collector would have it."""

    def __init__(self) -> None:
        self._exported = InMemorySpanExporter()

    def tracer(self, service: str) -> OtelTracer:
        return OtelTracer(service, SimpleSpanProcessor(self._exported))

    def spans(self) -> list[ReadableSpan]:
        return list(self._exported.get_finished_spans())

    def tree(self) -> dict[str, set[str]]:
        """The names of the spans below each; below "" the ones whose parent is elsewhere."""
        names = {span.context.span_id: f"{service_of(span)}: {span.name}" for span in self.spans()}
        found: dict[str, set[str]] = {}
        for span in self.spans():
            above = names.get(span.parent.span_id, "") if span.parent else ""
            found.setdefault(above, set()).add(f"{service_of(span)}: {span.name}")
        return found


def service_of(span: ReadableSpan) -> str:
    return str(span.resource.attributes["service.name"]).removeprefix("lorafleet-")


async def test_one_request_is_one_trace_from_http_to_the_replicas_last_token(
    tmp_path: Path, model_folder: Path
) -> None:
    """The gateway's request goes to a real replica, which loads the adapter for it."""
    traces = Traces()
    async with rig(tmp_path, model_folder, start=False) as replica:
        replica.trace_with(traces.tracer("replica_worker"))
        await replica.start()
        record = await replica.register("acme-1")

        async def run_it(scripted: ScriptedReplica, request: GenerateRequest) -> None:
            own = msgspec.structs.replace(replica.request("r1", record), traceparent=request.traceparent)
            await replica.caller.run(own)
            await says("a")(scripted, request)

        async with gateway_world(run_it, tracer=traces.tracer("gateway")) as world, world.client() as client:
            answer = await client.post(PATH, json=body(), headers={"traceparent": TRACEPARENT})
            assert answer.status_code == 200
    assert {f"{span.context.trace_id:032x}" for span in traces.spans()} == {TRACE}
    assert traces.tree() == {
        "": {"gateway: gateway request"},
        "gateway: gateway request": {"gateway: first token", "replica_worker: replica request"},
        "replica_worker: replica request": {
            "replica_worker: queue", "replica_worker: load", "replica_worker: first token", "replica_worker: decode",
        },
    }  # fmt: skip
    [root] = [span for span in traces.spans() if span.name == "gateway request"]
    assert root.parent is not None
    assert f"{root.parent.span_id:016x}" == PARENT
    assert root.attributes is not None
    assert (root.attributes["lorafleet.outcome"], root.attributes["lorafleet.tier"]) == ("stop", "gpu")


async def test_a_replica_that_refuses_is_part_of_the_trace(tmp_path: Path, model_folder: Path) -> None:
    traces = Traces()
    async with rig(tmp_path, model_folder, start=False) as replica:
        replica.trace_with(traces.tracer("replica_worker"))
        await replica.start()
        await replica.caller.run(replica.request("r1", traceparent=TRACEPARENT, pool_id="another"))
    [asked] = [span for span in traces.spans() if span.name == "replica request"]
    assert asked.parent is not None
    assert (f"{asked.parent.span_id:016x}", (asked.attributes or {})["lorafleet.outcome"]) == (PARENT, "refused")


@pytest.mark.parametrize("given", [None, "nonsense", "00-0-0-00"])
async def test_a_request_without_a_trace_begins_one(given: str | None) -> None:
    traces = Traces()
    async with gateway_world(says("a"), tracer=traces.tracer("gateway")) as world, world.client() as client:
        await client.post(PATH, json=body(), headers={"traceparent": given} if given else {})
        asked = await world.replicas[0].asked.get()
    [root] = [span for span in traces.spans() if span.name == "gateway request"]
    assert root.parent is None
    assert asked.traceparent.startswith(f"00-{root.context.trace_id:032x}-{root.context.span_id:016x}-")


async def test_by_default_nothing_is_traced_nor_passed_on() -> None:
    async with gateway_world(says("a")) as world, world.client() as client:
        await client.post(PATH, json=body(), headers={"traceparent": TRACEPARENT})
        assert (await world.replicas[0].asked.get()).traceparent == ""
    assert tracer_to("", "gateway") is NO_TRACER
    assert NO_TRACER.begin("anything", TRACEPARENT, 0.0) is NO_SPAN


def test_without_the_extra_the_sentence_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "shared.runtime.tracing_otel", None)
    with pytest.raises(SettingsError, match=r"pip install 'lorafleet\[tracing\]'"):
        tracer_to("http://127.0.0.1:4318/v1/traces", "gateway")
