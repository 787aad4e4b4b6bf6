"""The dashboard as a table of what panels ask; `python -m infra.grafana.dashboard` writes lorafleet.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).with_name("lorafleet.json")
_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 3
_SOURCE = {"type": "prometheus", "uid": "${source}"}


class Panel(NamedTuple):
    """`asked`: the legend of each query."""

    title: str
    unit: str
    asked: dict[str, str]


def _quantile(share: float, metric: str, by: str) -> str:
    return f"histogram_quantile({share}, sum by (le, {by}) (rate({metric}_bucket[5m])))"


PANELS = (
    Panel(
        "Time to first token, p95, by tier",
        "s",
        {"{{tier}}": _quantile(0.95, "lorafleet_gateway_ttft_seconds", "tier")},
    ),
    Panel(
        "Late first tokens",
        "percentunit",
        {
            "5 min": "lorafleet:late_first_tokens:ratio_rate5m",
            "1 h": "lorafleet:late_first_tokens:ratio_avg1h",
            "6 h": "lorafleet:late_first_tokens:ratio_avg6h",
        },
    ),
    Panel(
        "Customers with the longest wait, p95",
        "s",
        {
            "{{adapter}}": "topk(10, max by (adapter) (lorafleet_gateway_customer_ttft_p95_seconds))",
        },
    ),
    Panel(
        "Time per output token and between tokens, p95",
        "s",
        {
            "per token": "lorafleet:time_per_output_token_seconds:p95_rate5m",
            "between": "lorafleet:inter_token_seconds:p95_rate5m",
        },
    ),
    Panel(
        "Requests by how they ended",
        "reqps",
        {"{{outcome}}": "sum by (outcome) (rate(lorafleet_gateway_requests_total[5m]))"},
    ),
    Panel("Refusals by why", "reqps", {"{{reason}}": "sum by (reason) (rate(lorafleet_gateway_refusals_total[5m]))"}),
    Panel(
        "Tokens a second",
        "short",
        {
            "completion": "sum(rate(lorafleet_gateway_tokens_total[5m]))",
            "prompt": "sum(rate(lorafleet_gateway_prompt_tokens_total[5m]))",
            "prompt, cached": "sum(rate(lorafleet_gateway_cached_prompt_tokens_total[5m]))",
        },
    ),
    Panel("Found in a slot", "percentunit", {"GPU hits": "lorafleet:gpu_hits:ratio_rate15m"}),
    Panel("Evictions a minute", "short", {"{{instance}}": "lorafleet:evictions_per_minute:rate5m"}),
    Panel(
        "Replicas",
        "short",
        {
            "{{pool}} ready": "lorafleet_autoscaler_ready_replicas",
            "{{pool}} desired": "lorafleet_autoscaler_desired_replicas",
            "silent": "lorafleet_autoscaler_silent_replicas",
        },
    ),
    Panel("Waiting work", "s", {"{{pool}}": "lorafleet_autoscaler_queue_seconds"}),
    Panel("KV cache used", "percentunit", {"{{pool}}": "lorafleet_autoscaler_kv_used_share"}),
    Panel(
        "USD a million completion tokens",
        "currencyUSD",
        {
            "fleet": "lorafleet:usd_per_million_tokens",
            "{{pool}}": "lorafleet_autoscaler_usd_per_million_tokens",
        },
    ),
    Panel(
        "Streams, and frames on the way (p99)",
        "short",
        {
            "streams": "sum(lorafleet_gateway_streams)",
            "lag in s": "histogram_quantile(0.99, sum by (le) (rate(lorafleet_gateway_frame_lag_seconds_bucket[5m])))",
        },
    ),
    Panel(
        "The probe's answers",
        "short",
        {"{{verdict}}": "sum by (verdict) (increase(lorafleet_probe_answers_total[10m]))"},
    ),
)


def dashboard() -> dict[str, Any]:
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return {
        "uid": "lorafleet", "title": "lorafleet", "schemaVersion": 39, "refresh": "15s",
        "time": {"from": "now-6h", "to": "now"}, "templating": {"list": [source]},
        "panels": [_shown(number, panel) for number, panel in enumerate(PANELS)],
    }  # fmt: skip


def text() -> str:
    return json.dumps(dashboard(), indent=1) + "\n"


def _shown(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, _COLUMNS)
    targets = [
        {"refId": chr(ord("A") + at), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
        for at, (legend, query) in enumerate(panel.asked.items())
    ]
    return {
        "id": number + 1, "type": "timeseries", "title": panel.title, "datasource": _SOURCE, "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
    }  # fmt: skip


if __name__ == "__main__":
    FILE.write_text(text())
