"""What endpoint pickers in front of model servers (llm-d, the Gateway API Inference Extension) read of each, as vLLM
names it. Adapters go by their ids: an alias may mean another one tomorrow."""

from __future__ import annotations

from collections.abc import Iterable

from shared.messages.reports import ReplicaReport
from shared.runtime.metrics import Metrics, Rows

MOST_NAMES = 256
"""As many adapters as one label names: a scrape must not grow with the customers that wait."""
_LABELS = ("max_lora", "running_lora_adapters", "waiting_lora_adapters")


class Picking:
    def __init__(self, metrics: Metrics) -> None:
        self._running = self._waiting = self._cache_share = 0.0
        self._adapters: tuple[tuple[tuple[str, ...], float], ...] = ()
        show = metrics.foreign_gauge_of
        show("vllm:num_requests_running", "Requests in the batch.", (), lambda: [((), self._running)])
        show("vllm:num_requests_waiting", "Requests that wait.", (), lambda: [((), self._waiting)])
        share: Rows = lambda: [((), self._cache_share)]  # noqa: E731
        show("vllm:kv_cache_usage_perc", "How full the KV cache is, 0 to 1.", (), share)
        show("vllm:gpu_cache_usage_perc", "The same by its name of before.", (), share)
        show(
            "vllm:lora_requests_info",
            "Resident and awaited adapters; when that was so.",
            _LABELS,
            lambda: self._adapters,
        )

    def show(self, report: ReplicaReport, resident: Iterable[str], awaited: Iterable[str], at_s: float) -> None:
        """`resident` with those first that run; `at_s` is the wall clock's: pickers believe the newest."""
        self._running, self._waiting = float(report.running), float(report.queue_depth)
        self._cache_share = report.kv_used_tokens / report.kv_total_tokens if report.kv_total_tokens else 0.0
        self._adapters = (((str(report.slots), _listed(resident), _listed(awaited)), at_s),)


def _listed(names: Iterable[str]) -> str:
    return ",".join(list(dict.fromkeys(names))[:MOST_NAMES])
