from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shared.runtime.metrics import Metrics


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(metrics.exposition().decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def test_names_carry_the_service_and_values_their_labels() -> None:
    metrics = Metrics("gateway")
    metrics.counter("requests_total", "Requests.", ("tenant_id",)).labels("acme").inc(3)
    metrics.gauge("streams", "Streams that are open.").set(2)
    metrics.histogram("ttft_s", "Time to first token.", buckets=(0.1, 1.0)).observe(0.5)
    found = samples(metrics)
    assert found["lorafleet_gateway_requests_total", (("tenant_id", "acme"),)] == 3
    assert found["lorafleet_gateway_streams", ()] == 2
    assert found["lorafleet_gateway_ttft_s_bucket", (("le", "0.1"),)] == 0
    assert found["lorafleet_gateway_ttft_s_bucket", (("le", "1.0"),)] == 1
    assert found["lorafleet_gateway_ttft_s_count", ()] == 1


def test_two_services_in_one_process_do_not_mix() -> None:
    one, other = Metrics("gateway"), Metrics("gateway")
    one.gauge("streams", "Streams that are open.").set(1)
    assert b"lorafleet_gateway_streams" not in other.exposition()


def test_one_name_is_given_once() -> None:
    metrics = Metrics("gateway")
    metrics.gauge("streams", "Streams that are open.")
    with pytest.raises(ValueError, match="streams"):
        metrics.gauge("streams", "Again.")


def test_the_process_itself_is_measured() -> None:
    assert samples(Metrics("gateway"))["process_resident_memory_bytes", ()] > 0


def test_timings_are_a_histogram_like_any_other() -> None:
    metrics = Metrics("gateway")
    cheap = metrics.timings("cheap_s", "Ours.", ("tier",), (0.1, 1.0))
    usual = metrics.histogram("usual_s", "The library's.", ("tier",), (0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 1.0, 7.0):
        cheap.of("gpu").observe(seconds)
        usual.labels("gpu").observe(seconds)
    found = samples(metrics)

    def series(name: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        start = f"lorafleet_gateway_{name}_"
        return {
            (key[0].removeprefix(start), key[1]): value
            for key, value in found.items()
            if key[0].startswith(start) and not key[0].endswith("_created")
        }

    assert len(series("cheap_s")) == 5
    assert series("cheap_s") == pytest.approx(series("usual_s"))
    with pytest.raises(ValueError, match="cheap_s"):
        metrics.timings("cheap_s", "Again.")


def test_a_gauge_that_is_asked_shows_only_what_is_there_now() -> None:
    metrics, rows = Metrics("gateway"), {"a": 1.0, 'b"\n': 2.0}
    metrics.gauge_of("customers", "Who.", ("adapter",), lambda: [((name,), value) for name, value in rows.items()])
    metrics.foreign_gauge_of("vllm:num_requests_running", "Theirs.", (), lambda: [((), 3.0)])
    found = samples(metrics)
    assert found["lorafleet_gateway_customers", (("adapter", 'b"\n'),)] == 2
    assert found["vllm:num_requests_running", ()] == 3
    del rows["a"]
    assert ("lorafleet_gateway_customers", (("adapter", "a"),)) not in samples(metrics)
