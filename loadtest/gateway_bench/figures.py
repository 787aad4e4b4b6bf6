"""From what was seen at each door to the figures of the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from loadtest.gateway_bench.measuring import Sample
from loadtest.gateway_bench.scenarios import FEW, FLOOD, MANY, ONE_TOKEN, OPEN
from loadtest.report import Figure

OURS, OURS_FOUR = "lorafleet", "lorafleet_4"
RIVAL, DIRECT = "vllm_router", "direct"
_TIMED = {OPEN.name, FLOOD.name, ONE_TOKEN.name}
"""Those in which somebody else's work would show."""
_DOOR = ("gateway", "router")
"""What the processes of a door itself are called."""
_TARGETS = {
    "cpu_us_per_request": "<= 400",
    "requests_per_s": ">= 2000",
    "bytes_per_open_stream": "<= 20000",
}
"""Of ours, with one process."""
_ADDED = {"p50": "<= 1.0", "p95": "<= 2.5"}
"""Milliseconds until the first token, over the backends called directly: those take some of their own."""


class Front(msgspec.Struct, frozen=True, kw_only=True):
    """All that was seen at one door. `samples` by scenario; `saying`, if it is ours: of the first scenario before
    replicas that do nothing but publish, as the mock backends do. Ten whole workers have a processor to share with the
    client: how late they are themselves would be the door's."""

    name: str
    idle_bytes: int = 0
    samples: Mapping[str, Sample] = {}
    saying: Sample | None = None

    def sample(self, name: str) -> Sample | None:
        found = self.samples.get(name)
        return found if found is not None and found.heard.tokens else None


def figures(fronts: Mapping[str, Front]) -> dict[str, Figure]:
    """Ours bare, everybody else's with their name; only what was measured."""
    found = dict(_ratios(fronts))
    for front in fronts.values():
        for name, (value, unit) in _values(front).items():
            if front.name == OURS:
                found[name] = _figure(value, unit, _TARGETS.get(name))
            else:
                found[f"{name}.{front.name}"] = _figure(value, unit)
    return found


def failures(front: Front) -> dict[str, int]:
    """By scenario, requests that did not end as they should."""
    every = {**front.samples, **({"saying": front.saying} if front.saying is not None else {})}
    lost = {name: each.heard.failed + each.heard.unconnected for name, each in every.items()}
    return {name: count for name, count in lost.items() if count}


def _ratios(fronts: Mapping[str, Front]) -> Iterator[tuple[str, Figure]]:
    ours, rival, direct = (_values(fronts[name]) if name in fronts else {} for name in (OURS, RIVAL, DIRECT))
    if {"cpu_us_per_token"} <= ours.keys() & rival.keys():
        own, others = ours["cpu_us_per_token"][0], rival["cpu_us_per_token"][0]
        with_nats = own + ours["cpu_us_per_token_nats"][0]
        yield "cpu_per_token_vs_vllm_router", _figure(own / others, "", "<= 1.0")
        yield "cpu_per_token_with_nats_vs_vllm_router", _figure(with_nats / others, "", "<= 1.3")
    if {"flood_tokens_per_s"} <= ours.keys() & rival.keys():
        ratio = ours["flood_tokens_per_s"][0] / rival["flood_tokens_per_s"][0]
        yield "flood_tokens_per_s_vs_vllm_router", _figure(ratio, "", ">= 1.0")
    for share, target in _ADDED.items():
        if (name := f"added_ttft_ms.{share}") in ours.keys() & direct.keys():
            yield f"added_ttft_over_direct_ms.{share}", _figure(ours[name][0] - direct[name][0], "ms", target)


def _values(front: Front) -> dict[str, tuple[float, str]]:
    return {
        **_paced(front),
        **_flooded(front),
        **_asked(front),
        **_remembered(front),
        "failed_requests": (sum(failures(front).values()), ""),
        "noise_share": (
            max((front.samples[name].noise_share for name in _TIMED & front.samples.keys()), default=0.0),
            "",
        ),
    }


def _paced(front: Front) -> dict[str, tuple[float, str]]:
    sample = front.sample(OPEN.name)
    if sample is None:
        return {}
    found = {"cpu_us_per_token": (_door_s(sample) * 1e6 / sample.heard.tokens, "us")}
    for group in ("nats", "worker"):
        if group in sample.cpu_s:
            found[f"cpu_us_per_token_{group}"] = (sample.cpu_s[group] * 1e6 / sample.heard.tokens, "us")
    if front.saying is None or not front.saying.heard.tokens:
        return {**found, **_late(sample)}
    published = front.saying.cpu_s["worker"] * 1e6 / front.saying.heard.tokens
    found["cpu_us_per_token_publishing"] = (published, "us")
    timed = {f"{name}.timed_workers": value for name, value in _late(sample).items()}
    return {**found, **_late(front.saying), **timed}


def _late(sample: Sample) -> dict[str, tuple[float, str]]:
    """What the way took, in front of whoever stood behind."""
    found = {"tokens_per_s": (sample.tokens_per_s, "1/s")}
    for share in ("p50", "p95"):
        added_ms, relay_ms = getattr(sample.heard.added_ttft_ms, share), getattr(sample.heard.relay_ms, share)
        if added_ms is not None:
            found[f"added_ttft_ms.{share}"] = (added_ms, "ms")
        if relay_ms is not None:
            found[f"relay_ms.{share}"] = (relay_ms, "ms")
    return found


def _flooded(front: Front) -> dict[str, tuple[float, str]]:
    sample = front.sample(FLOOD.name)
    if sample is None:
        return {}
    return {
        "flood_tokens_per_s": (sample.tokens_per_s, "1/s"),
        "flood_core_share": (_door_s(sample) / sample.heard.took_s, ""),
        "flood_cpu_us_per_token": (_door_s(sample) * 1e6 / sample.heard.tokens, "us"),
    }


def _asked(front: Front) -> dict[str, tuple[float, str]]:
    sample = front.sample(ONE_TOKEN.name)
    if sample is None or not sample.heard.completed:
        return {}
    found = {
        "requests_per_s": (sample.requests_per_s, "1/s"),
        "cpu_us_per_request": (_door_s(sample) * 1e6 / sample.heard.completed, "us"),
    }
    for group in ("nats", "worker", "valkey"):
        if group in sample.cpu_s:
            found[f"cpu_us_per_request_{group}"] = (sample.cpu_s[group] * 1e6 / sample.heard.completed, "us")
    return found


def _remembered(front: Front) -> dict[str, tuple[float, str]]:
    found = {"idle_rss_bytes": (float(front.idle_bytes), "B")} if front.idle_bytes else {}
    few, many = front.sample(FEW.name), front.sample(MANY.name)
    if few is not None and many is not None:
        grown = sum(many.rss_bytes.get(name, 0) - few.rss_bytes.get(name, 0) for name in _DOOR)
        streams = many.heard.under_way - few.heard.under_way
        found["bytes_per_open_stream"] = (grown / streams, "B")
    return found


def _door_s(sample: Sample) -> float:
    return sum(sample.cpu_s.get(name, 0.0) for name in _DOOR)


def _figure(value: float, unit: str, target: str | None = None) -> Figure:
    return Figure(value=float(f"{value:.4g}"), unit=unit, target=target)
