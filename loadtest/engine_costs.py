"""What adapters cost, as last measured, in README.md and docs/operating.md: `python -m loadtest.engine_costs`.

Both pages hold a part between two marks that is the benchmark's own output; a test compares them with the report.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from loadtest.engine_plan import (
    DISTINCT,
    FLOAT32,
    LONG_CONTEXT,
    PEFT,
    RANK,
    RANKS,
    ROWS,
    TIERS,
    TRANSFORMERS,
    VLLM,
    cell,
    other_threads,
)
from loadtest.report import Figure, Report, read_report, table

ROOT = Path(__file__).parent.parent
_NOTHING = "–"


def main() -> None:
    """Write both pages anew from reports/engine.json. Raises ValueError for a page without its marks."""
    report = read_report("engine")
    for page, part in pages(report).items():
        page.write_text(replaced(page.read_text(), part))


def pages(report: Report) -> dict[Path, str]:
    return {ROOT / "README.md": costs(report), ROOT / "docs" / "operating.md": aimed(report)}


def replaced(text: str, part: str) -> str:
    """The page with another part between its marks. Raises ValueError if it has none."""
    begin, end = "<!-- engine figures: begin -->\n", "<!-- engine figures: end -->\n"
    if not re.search(f"{begin}.*{end}", text, re.DOTALL):
        raise ValueError(f"there is no part between {begin.strip()} and {end.strip()}")
    before, _, rest = text.partition(begin)
    return before + begin + part + end + rest.partition(end)[2]


def costs(report: Report) -> str:
    """The README's tables: speed and share of the base by batch and distinct adapters, and what changes them."""
    return "\n".join([
        *_by_batch(report), "", *_by_condition(report), "", *_beside(report), "", *_by_tier(report), ""
    ])  # fmt: skip


def aimed(report: Report) -> str:
    """The operator's list: every figure that has a target."""
    targeted = {name: figure for name, figure in report.figures.items() if figure.target}
    return "\n".join([f"{_measured(report)}:", "", "```text", table(targeted), "```", ""])


def _by_batch(report: Report) -> Iterator[str]:
    yield f"{_measured(report)}; bfloat16, rank 16, {_threads(report)},"
    yield "contexts of 33 to 65 tokens. Token/s of the whole batch, and the share of what the base model alone reaches:"
    yield ""
    yield "| batch | base | " + " | ".join(f"{distinct} adapter{'s' * (distinct > 1)}" for distinct in DISTINCT) + " |"
    yield "|---|---|" + "---|" * len(DISTINCT)
    for rows in ROWS:
        shown = [_speed_and_share(report.figures, cell(rows, distinct)) for distinct in DISTINCT]
        yield f"| {rows} | {_speed(report.figures, cell(rows, 0))} | " + " | ".join(shown) + " |"


def _by_condition(report: Report) -> Iterator[str]:
    """What makes the cost larger or smaller, always 8 distinct adapters against the base alone."""
    threads = other_threads(int(report.conditions["threads"]))
    rows = [
        ("as above", cell(32, 8)),
        *((f"rank {rank}", cell(32, 8, f"rank{rank}")) for rank in RANKS),
        ("float32", cell(32, 8, FLOAT32)),
        (f"{threads} thread{'s' * (threads > 1)}", cell(32, 8, f"threads{threads}")),
        ("batch 8", cell(8, 8)),
        ("batch 8, contexts of 513 to 530 tokens", cell(8, 8, LONG_CONTEXT)),
    ]
    yield "| 8 adapters, batch 32, | base | with adapters |"
    yield "|---|---|---|"
    for name, key in rows:
        base = key.replace(".d8", ".base")
        yield f"| {name} | {_speed(report.figures, base)} | {_speed_and_share(report.figures, key)} |"


def _beside(report: Report) -> Iterator[str]:
    """The same rows by other engines, in turns with ours in the same run."""
    rows = [
        (cell(32, 0, VLLM), VLLM), (cell(32, 8, VLLM), VLLM),
        (cell(8, 0, TRANSFORMERS), TRANSFORMERS), (cell(8, 4, PEFT), PEFT),
    ]  # fmt: skip
    yield "| in the same run | other engine | ours |"
    yield "|---|---|---|"
    for key, engine in rows:
        batch, mixed, _ = key.split(".")
        what = "base" if mixed == "base" else f"{mixed[1:]} adapters"
        name = f"batch {batch[1:]}, {what}: {report.conditions[engine]}"
        ours = _speed(report.figures, f"{batch}.{mixed}")
        yield f"| {name} | {_speed(report.figures, key)} | {ours} |"


def _by_tier(report: Report) -> Iterator[str]:
    """What one adapter takes: time on its way up, bytes where it is, and the proof of its effect."""
    shown = {name: str(figure) for name, figure in report.figures.items()}
    yield f"| one adapter of rank {RANK} | takes | a plain copy of its bytes |"
    yield "|---|---|---|"
    for name, tier in (("store → disk", TIERS[0]), ("disk → RAM", TIERS[1]), ("RAM → slot", TIERS[2])):
        yield f"| {name} | {shown.get(f'load_ms.{tier}', _NOTHING)} | {shown.get(f'copy_ms.{tier}', _NOTHING)} |"
    yield f"| in RAM, in a slot | {shown.get('adapter_mb', _NOTHING)}, {shown.get('slot_mb', _NOTHING)} | |"
    yield f"| proof of its effect, in its first request | {shown.get('probe_ms', _NOTHING)} | |"


def _measured(report: Report) -> str:
    return f"{report.conditions['model']} on {report.machine}, {report.date[:10]} (`make bench-engine`)"


def _threads(report: Report) -> str:
    threads = report.conditions["threads"]
    return f"{threads} thread{'s' * (threads != '1')}"


def _speed_and_share(figures: Mapping[str, Figure], key: str) -> str:
    share = figures.get(f"share.{key}")
    if share is None or share.value is None:
        return _speed(figures, key)
    return f"{_speed(figures, key)} ({share.value:.0%})"


def _speed(figures: Mapping[str, Figure], key: str) -> str:
    speed = figures.get(f"tokens_per_s.{key}")
    return _NOTHING if speed is None or speed.value is None else f"{speed.value:.0f}"


if __name__ == "__main__":
    main()
