"""Front doors side by side, as last measured, in README.md: `python -m loadtest.gateway_bench.markdown`.

The page holds a part between two marks that is the benchmark's own output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from loadtest.gateway_bench.figures import OURS
from loadtest.report import Figure, Report, read_report

PAGE = Path(__file__).parents[2] / "README.md"
BEGIN, END = "<!-- gateway figures: begin -->\n", "<!-- gateway figures: end -->\n"
NAMES = {
    "direct": "no door: the backends themselves",
    "nginx": "nginx",
    "vllm_router": "vllm-router",
    "sglang_router": "sglang-router",
    "litellm": "LiteLLM proxy",
    "lorafleet": "**lorafleet**",
    "lorafleet_4": "lorafleet, 4 processes on that core",
}
_COLUMNS = (
    ("CPU µs per token", "cpu_us_per_token", 1.0),
    ("first token later by, p50 ms", "added_ttft_ms.p50", 1.0),
    ("p95 ms", "added_ttft_ms.p95", 1.0),
    ("tokens/s at most", "flood_tokens_per_s", 1.0),
    ("requests/s at most", "requests_per_s", 1.0),
    ("CPU µs per request", "cpu_us_per_request", 1.0),
    ("MB idle", "idle_rss_bytes", 1e-6),
    ("kB per open stream", "bytes_per_open_stream", 1e-3),
)
_BESIDE = (
    ("nats-server", "nats"),
    ("a whole worker", "worker"),
    ("of it, what publishes", "publishing"),
)
_NOTHING = "–"


def main() -> None:
    """Write the page anew from reports/gateway.json. Raises ValueError for a page without its marks."""
    PAGE.write_text(replaced(PAGE.read_text(), part(read_report("gateway"))))


def replaced(page: str, part: str) -> str:
    """The page with another part between its marks. Raises ValueError if it has none."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"there is no part between {BEGIN.strip()} and {END.strip()}")
    return before + BEGIN + part + END + after


def part(report: Report) -> str:
    doors = [door for door in NAMES if any(name.endswith(f".{door}") for name in report.figures) or door == OURS]
    return "\n".join([
        f"On {report.machine}, {report.date[:10]} (`make bench-gateway`); one process on one core, 40 requests/s",
        "of 250 tokens at 25 ms, backends of the same timing:",
        "",
        table(report.figures, doors),
        "",
        *_beside(report.figures),
    ])  # fmt: skip


def table(figures: Mapping[str, Figure], doors: Sequence[str]) -> str:
    lines = [_line(["", *(title for title, _, _ in _COLUMNS)]), "|---|" + "---|" * len(_COLUMNS)]
    for door in doors:
        lines.append(_line([NAMES[door], *(_cell(figures, name, door, factor) for _, name, factor in _COLUMNS)]))
    return "\n".join(lines)


def _beside(figures: Mapping[str, Figure]) -> Iterator[str]:
    """What else takes part where ours is."""
    told = [f"{title} {_cell(figures, f'cpu_us_per_token_{name}', OURS, 1.0)}" for title, name in _BESIDE]
    yield f"CPU µs per token beside our gateway: {', '.join(told)}."
    yield ""


def _cell(figures: Mapping[str, Figure], name: str, door: str, factor: float) -> str:
    found = figures.get(name if door == OURS else f"{name}.{door}")
    if found is None or found.value is None:
        return _NOTHING
    value = found.value * factor
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
