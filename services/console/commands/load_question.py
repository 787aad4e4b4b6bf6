"""From the words of `lorafleet load` to what is sent, to whom, and for how long."""

from __future__ import annotations

import argparse
import ipaddress
import json
from pathlib import Path
from typing import Any

import msgspec

from loadtest.driver.asking import Target, Wording, address_of
from loadtest.driver.figures import Asked
from loadtest.driver.planned import arrivals
from loadtest.driver.running import Limits
from loadtest.workloads.shape import (
    Day,
    Fixed,
    Lengths,
    LogNormal,
    OneHot,
    RecordedLengths,
    TrafficShape,
    Uniform,
    Zipf,
)
from loadtest.workloads.trace import Trace, TraceUnreadable, read_trace
from services.console.core.outcome import USAGE
from services.console.io.admin import CommandFailed
from services.console.io.chat import Door

_FOR_S = 30.0
_CAP = 16
"""So many times the mean, and a length is cut."""
_SLOWEST = 0.1
"""Of the rate that was asked for: a load of a number of requests has come to its end by then."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """`markers` [alias] are looked for in the answers; `most` requests are sent at most."""

    target: Target
    aliases: tuple[str, ...]
    shape: TrafficShape
    limits: Limits
    wording: Wording
    asked: Asked
    markers: dict[str, str]
    most: int | None


def question(words: argparse.Namespace, target: Target) -> Load:
    """Raises CommandFailed, in one sentence."""
    _allowed(target.url, words.yes_this_host)
    aliases = _aliases(words, target)
    return Load(
        target=target,
        aliases=aliases,
        shape=_shape(words, len(aliases)),
        limits=Limits(most_streams=words.most_streams, timeout_s=words.timeout_s, warm_up_s=words.warm_up_s),
        wording=Wording(tokens_per_word=words.tokens_per_word, more=_body(words.body), seed=words.seed),
        asked=Asked(burstiness=None if words.trace else words.burstiness, goals=dict(words.goodput)),
        markers=texts(words.check_markers),
        most=words.requests,
    )


def texts(path: Path | None) -> dict[str, str]:
    """A JSON object of texts, {} without a file. Raises CommandFailed."""
    if path is None:
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except OSError as error:
        raise CommandFailed(f"{path} cannot be read: {error.strerror}.", USAGE) from error
    except msgspec.MsgspecError as error:
        raise CommandFailed(f"{path} is no JSON object of texts: {error}.", USAGE) from error


def _allowed(url: str, this_host: bool) -> None:
    """A load on somebody else's machine is an attack: whoever means it says so."""
    try:
        host = address_of(url).host
    except ValueError as error:
        raise CommandFailed(str(error), USAGE) from error
    if not this_host and not _is_here(host):
        raise CommandFailed(f"{host} is another machine: add --yes-this-host if you may put this load on it.", USAGE)


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _aliases(words: argparse.Namespace, target: Target) -> tuple[str, ...]:
    if words.aliases is None:
        found = _callable(target)
    elif "{}" in words.aliases:
        if words.count is None:
            raise CommandFailed(f"How many aliases are there like {words.aliases}? Add --count.", USAGE)
        found = [words.aliases.replace("{}", str(number)) for number in range(words.count)]
    else:
        found = _listed(Path(words.aliases))
    if not found:
        raise CommandFailed("There is no alias to ask: give --aliases, or a key that may call some.", USAGE)
    return tuple(found[: words.count])


def _callable(target: Target) -> list[str]:
    """What all keys may call: base models, which have no tenant in their names, only where there is nothing else."""
    keys = {target.key, *target.keys.values()} - {""}
    names = sorted({name for key in keys for name in Door(target.url, key).models()})
    return [name for name in names if "/" in name] or names


def _listed(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split()
    except OSError as error:
        raise CommandFailed(f"{path} cannot be read: {error.strerror}.", USAGE) from error
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{path} cannot be read: {error}.", USAGE) from error


def _shape(words: argparse.Namespace, customers: int) -> TrafficShape:
    trace = _trace(words.trace)
    return TrafficShape(
        customers=customers,
        rate_per_s=words.rate,
        for_s=_for_s(words),
        seed=words.seed,
        popularity=_popularity(words),
        arrivals=arrivals(words.burstiness) if trace is None else trace.arrivals(),
        lengths=_lengths(words) if trace is None else trace.lengths(),
        day=None if words.day is None else Day(length_s=words.day, peak_at_s=words.day / 2),
    )


def _for_s(words: argparse.Namespace) -> float:
    if words.for_s is not None:
        return float(words.for_s)
    if words.requests is not None and words.sweep is None:
        return float(_FOR_S + words.requests / words.rate / _SLOWEST)
    return float(words.warm_up_s + (words.day or _FOR_S))


def _popularity(words: argparse.Namespace) -> Zipf | Uniform | OneHot:
    if words.one_hot is not None:
        return OneHot(share=words.one_hot)
    return Zipf(s=words.zipf) if words.zipf else Uniform()


def _lengths(words: argparse.Namespace) -> Lengths | RecordedLengths:
    def spread(mean: int) -> Fixed | LogNormal:
        return LogNormal(mean=mean, cv=words.cv, cap=_CAP * mean) if words.cv else Fixed(tokens=mean)

    return Lengths(prompt=spread(words.prompt), output=spread(words.output))


def _trace(path: Path | None) -> Trace | None:
    try:
        return None if path is None else read_trace(path)
    except TraceUnreadable as error:
        raise CommandFailed(str(error), USAGE) from error


def _body(text: str | None) -> dict[str, Any]:
    try:
        more: Any = json.loads(text or "{}")
    except ValueError as error:
        raise CommandFailed(f"{text!r} is no JSON: {error}.", USAGE) from error
    if not isinstance(more, dict):
        raise CommandFailed(f"{text!r} is no JSON object.", USAGE)
    return more
