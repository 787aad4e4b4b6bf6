"""From what every visit of the engine benchmark measured to its figures: pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from loadtest.engine_cases import Answer
from loadtest.engine_plan import (
    FEW_SLOTS,
    MANY_SLOTS,
    PEFT,
    PREFILL_TOKENS,
    ROWS,
    TIERS,
    TRANSFORMERS,
    VLLM,
    cell,
)
from loadtest.measures import quantile
from loadtest.report import Figure

TARGETS: Mapping[str, str] = {
    "share.b32.d1": ">= 0.90",
    "share.b32.d8": ">= 0.80",
    "share.b32.d32": ">= 0.60",
    "base_vs_vllm.b32": ">= 1.0",
    "base_vs_transformers.b8": ">= 1.5",
    "mixed_vs_vllm.b32.d8": ">= 2",
    "mixed_vs_peft.b8.d4": ">= 2",
    "itl_p99_loading_ratio": "<= 1.2",
    "ram_to_slot_vs_copy": "<= 1.5",
    "thrash_ttft_ratio": "<= 2",
    "probe_ttft_share": "<= 0.05",
}

Visits = Mapping[str, Sequence[Answer]]
"""By key of the visit: what each round was answered."""


def engine_figures(visits: Visits) -> dict[str, Figure]:
    """Every figure, those with a target first. What was not measured is there too, without a value."""
    figures = {
        **_targeted(visits),
        **decoding(visits),
        **_requests(visits),
        **_loading(visits),
        **_memory(visits),
        **_thrashing(visits),
    }
    return {**{name: figures[name] for name in TARGETS}, **figures}


def _targeted(visits: Visits) -> dict[str, Figure]:
    """The comparisons; shares are among the cells of the table."""
    values = {
        "base_vs_vllm.b32": faster(visits, cell(32, 0), cell(32, 0, VLLM)),
        "base_vs_transformers.b8": faster(visits, cell(8, 0), cell(8, 0, TRANSFORMERS)),
        "mixed_vs_vllm.b32.d8": faster(visits, cell(32, 8), cell(32, 8, VLLM)),
        "mixed_vs_peft.b8.d4": faster(visits, cell(8, 4), cell(8, 4, PEFT)),
    }
    return {name: _figure(name, value, "") for name, value in values.items()}


def decoding(visits: Visits) -> dict[str, Figure]:
    """Speed, step time and share of the base under the same conditions, for every cell that was visited."""
    figures = {}
    for key in visits:
        place, _, rest = key.partition(".")
        if place not in {f"b{rows}" for rows in ROWS}:
            continue
        step_s = statistics.median(_steps_s(visits, key))
        figures[f"tokens_per_s.{key}"] = _figure("", int(place[1:]) / step_s, "token/s")
        figures[f"step_ms.{key}"] = _figure("", step_s * 1000, "ms")
        base = ".".join([place, "base", *rest.split(".")[1:]])
        if base != key and base in visits:
            figures[f"share.{key}"] = _figure(f"share.{key}", faster(visits, key, base), "")
    return figures


def _requests(visits: Visits) -> dict[str, Figure]:
    """Prefill speed, and a cold first token with and without the probe of its adapter."""
    figures = {}
    for key in ("prefill.base", "prefill.d1"):
        took_s = _median(visits, key)
        figures[f"tokens_per_s.{key}"] = _figure("", took_s and PREFILL_TOKENS / took_s, "token/s")
    alone_s, probed_s = _median(visits, "cold.alone"), _median(visits, "cold.probed")
    share = _ratio(visits, "cold.alone", "cold.probed")
    figures["cold_first_token_ms"] = _figure("", probed_s and probed_s * 1000, "ms")
    figures["probe_ms"] = _figure("", probed_s and alone_s and (probed_s - alone_s) * 1000, "ms")
    figures["probe_ttft_share"] = _figure("probe_ttft_share", share and max(0.0, 1.0 - share), "")
    return figures


def _loading(visits: Visits) -> dict[str, Figure]:
    """What loads take, what as many bytes take by a plain copy, and what loads do to streams."""
    figures = {}
    for tier in TIERS:
        pairs = [
            pair for answer in visits.get(f"loads.{tier}", ()) for pair in zip(answer[::2], answer[1::2], strict=True)
        ]
        figures[f"load_ms.{tier}"] = _figure("", _middle([load * 1000 for load, _ in pairs]), "ms")
        figures[f"copy_ms.{tier}"] = _figure("", _middle([copy * 1000 for _, copy in pairs]), "ms")
        name = f"{tier}_vs_copy"
        figures[name] = _figure(name, _middle([load / copy for load, copy in pairs]), "")
    return figures | _gaps(visits)


def _gaps(visits: Visits) -> dict[str, Figure]:
    """The long gaps between steps, and how many times as long loads make them."""
    figures = {}
    quiet, steady, back_to_back = (
        [quantile(gaps, 0.99) for gaps in visits.get(f"gaps.{kind}", ())] for kind in ("none", "steady", "back_to_back")
    )
    for kind, gaps in (("quiet", quiet), ("loading", steady), ("back_to_back", back_to_back)):
        figures[f"itl_p99_ms.{kind}"] = _figure("", _middle([gap * 1000 for gap in gaps]), "ms")
    for name, gaps in (("itl_p99_loading_ratio", steady), ("itl_p99_loading_ratio.back_to_back", back_to_back)):
        ratio = _middle([after / before for before, after in zip(quiet, gaps, strict=True)])
        figures[name] = _figure(name, ratio, "")
    return figures


def _memory(visits: Visits) -> dict[str, Figure]:
    """One adapter in RAM, and one slot: by how much an engine with more filled slots holds more bytes."""
    many, few = visits.get("memory.many", ()), visits.get("memory.few", ())
    slot_bytes = None
    if many and few:
        slot_bytes = (many[0][0] - few[0][0]) / (MANY_SLOTS - FEW_SLOTS)
    return {
        "adapter_mb": _figure("", many[0][1] / 1e6 if many else None, "MB"),
        "slot_mb": _figure("", slot_bytes and slot_bytes / 1e6, "MB"),
    }


def _thrashing(visits: Visits) -> dict[str, Figure]:
    """The median first token with all adapters in slots and with twice as many, and their ratio."""
    ratio, in_slots_ms, thrash_ms = visits["thrash"][0] if "thrash" in visits else (None, None, None)
    return {
        "thrash_ttft_ratio": _figure("thrash_ttft_ratio", ratio, ""),
        "ttft_ms.in_slots": _figure("", in_slots_ms, "ms"),
        "ttft_ms.thrash": _figure("", thrash_ms, "ms"),
    }


def _steps_s(visits: Visits, key: str) -> list[float]:
    """The median step of every round: what a neighbour on the machine does to single steps is not the engine's."""
    return [statistics.median(answer) for answer in visits[key]]


def faster(visits: Visits, ours: str, theirs: str) -> float | None:
    """How many times as fast as `theirs` is `ours`: the median over rounds, each compared with itself."""
    if ours not in visits or theirs not in visits:
        return None
    return _middle([b / a for a, b in zip(_steps_s(visits, ours), _steps_s(visits, theirs), strict=True)])


def _ratio(visits: Visits, over: str, under: str) -> float | None:
    pairs = zip(visits.get(over, ()), visits.get(under, ()), strict=True)
    return _middle([a[0] / b[0] for a, b in pairs])


def _median(visits: Visits, key: str) -> float | None:
    return _middle([answer[0] for answer in visits.get(key, ())])


def _middle(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _figure(name: str, value: float | None, unit: str) -> Figure:
    return Figure(value=None if value is None else float(f"{value:.4g}"), unit=unit, target=TARGETS.get(name))
