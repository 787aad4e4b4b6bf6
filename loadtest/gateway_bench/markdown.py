"""The comparison as a table for documents, which nobody writes by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loadtest.gateway_bench.figures import OURS
from loadtest.report import Figure

BEGIN = "<!-- the output of `make bench-gateway` -->"
END = "<!-- end of that output -->"
NAMES = {
    "lorafleet": "**lorafleet**", "lorafleet_4": "lorafleet, 4 processes", "nginx": "nginx",
    "vllm_router": "vllm-router", "sglang_router": "sglang-router", "litellm": "LiteLLM proxy",
    "direct": "no door: the backend itself",
}  # fmt: skip
_COLUMNS = (
    ("CPU µs per token", "cpu_us_per_token", 1.0),
    ("added TTFT p50 ms", "added_ttft_ms.p50", 1.0),
    ("p95 ms", "added_ttft_ms.p95", 1.0),
    ("flooded tokens/s", "flood_tokens_per_s", 1.0),
    ("requests/s", "requests_per_s", 1.0),
    ("CPU µs per request", "cpu_us_per_request", 1.0),
    ("MB idle", "idle_rss_bytes", 1e-6),
    ("kB per open stream", "bytes_per_open_stream", 1e-3),
)


def table(figures: Mapping[str, Figure], doors: Sequence[str]) -> str:
    lines = [
        _line(["one process on one core", *(title for title, _, _ in _COLUMNS)]),
        _line(["---", *("--:" for _ in _COLUMNS)]),
    ]
    for door in doors:
        lines.append(_line([NAMES[door], *(_cell(figures, name, door, factor) for _, name, factor in _COLUMNS)]))
    return "\n".join(lines)


def placed(document: str, text: str) -> str:
    """The document with the text between its two marks. Raises ValueError if it has none."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"there is no place for the table: it lies between {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def _cell(figures: Mapping[str, Figure], name: str, door: str, factor: float) -> str:
    found = figures.get(name if door == OURS else f"{name}.{door}")
    if found is None or found.value is None:
        return "–"
    value = found.value * factor
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
