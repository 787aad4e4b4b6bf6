"""The words of `lorafleet load`."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from services.console.core.probing import seconds_of
from services.console.leaves import plain

GOALS = ("ttft", "tpot", "e2el")


def add_load(commands: argparse._SubParsersAction) -> None:
    made = plain(commands, "load", "load", "send a fleet requests as they would come, and measure what clients see")
    _whom(made.add_argument_group("whom"))
    _what(made.add_argument_group("what"))
    _how_long(made.add_argument_group("how long"))
    _found(made.add_argument_group("what is found"))
    made.set_defaults(needs="load")


def _whom(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--url", help="the public address (default: this folder's fleet)")
    add("--key", help="the key to ask with (default: this folder's)")
    add("--keys", type=Path, metavar="JSON", help="{tenant: key}, for aliases that begin with `tenant/`")
    add("--aliases", metavar="FILE", help="one a line, the busiest first, or 'c{}/bot:prod' (default: the key's)")
    add("--count", type=_whole, metavar="N", help="of the aliases the first N; those with {} count from 0")
    add("--yes-this-host", action="store_true", help="load another machine than this one")


def _what(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--rate", type=_above_zero, default=2.0, metavar="X", help="requests a second, at the peak (default 2)")
    add(
        "--burstiness",
        type=_above_zero,
        default=1.0,
        metavar="X",
        help="Gamma gaps: 1 Poisson, less: clumps, inf: even",
    )
    add("--zipf", type=_not_negative, default=1.0, metavar="X", help="the k-th alias' share is ~ 1 / k^X (default 1)")
    add("--one-hot", type=_share, metavar="SHARE", help="the first alias has this share, the others the rest evenly")
    add("--day", type=_seconds, metavar="DURATION", help="a day's shape in so long, the peak in the middle")
    add("--prompt", type=_whole, default=100, metavar="N", help="tokens, on average (default 100)")
    add("--output", type=_whole, default=32, metavar="N", help="tokens an answer may have, on average (default 32)")
    add("--cv", type=_not_negative, default=0.0, metavar="X", help="how both spread (lognormal; default 0: all alike)")
    add("--trace", type=Path, metavar="CSV", help="lengths and gaps of an Azure LLM inference trace")
    add("--tokens-per-word", type=_above_zero, default=1.0, metavar="X", help="of the base's tokenizer (default 1)")
    add("--body", metavar="JSON", help="more fields for every request, such as '{\"ignore_eos\": true}'")
    add("--seed", type=int, default=0, metavar="N", help="the same seed gives the same load (default 0)")


def _how_long(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--for", dest="for_s", type=_seconds, metavar="DURATION", help="90s, 10m, 1h (default 30s)")
    add("--requests", type=_whole, metavar="N", help="so many at most, however long that takes")
    add("--warm-up", dest="warm_up_s", type=_seconds, default=0.0, metavar="DURATION", help="that does not count")
    add("--most-streams", type=_whole, default=4096, metavar="N", help="at once; others wait (default 4096)")
    add("--timeout", dest="timeout_s", type=_seconds, default=120.0, metavar="DURATION", help="of one answer (120s)")
    more = "raise the rate by this factor (1.25) until the objective breaks; each for --for"
    add("--sweep", type=_more_than_one, nargs="?", const=1.25, metavar="FACTOR", help=more)
    add("--most-steps", type=_whole, default=20, metavar="N", help="of a sweep (default 20)")


def _found(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--objective", type=_above_zero, default=1000.0, metavar="MS", help="for the p95 of the first token (1000)")
    add(
        "--goodput", type=_goal, nargs="+", default=[], metavar="GOAL", help="count those with ttft:1000 tpot:50, in ms"
    )
    add("--check-markers", type=Path, metavar="JSON", help="{alias: text}: each is to say its own and nobody else's")
    add("--out", type=Path, metavar="FOLDER", help="for load.json, .html and .png; of a sweep, sweep.…")
    add("--json", action="store_true", help="print JSON instead of text")


def _goal(text: str) -> tuple[str, float]:
    name, _, most_ms = text.partition(":")
    if name not in GOALS:
        raise argparse.ArgumentTypeError(f"{text} is no goal such as ttft:1000; there are {', '.join(GOALS)}")
    return name, _above_zero(most_ms)


def _seconds(text: str) -> float:
    try:
        return seconds_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _above_zero(text: str) -> float:
    if (value := float(text)) > 0:
        return value
    raise argparse.ArgumentTypeError(f"{text} is not above 0")


def _not_negative(text: str) -> float:
    if 0 <= (value := float(text)) < math.inf:
        return value
    raise argparse.ArgumentTypeError(f"{text} is below 0")


def _more_than_one(text: str) -> float:
    if 1 < (value := float(text)) < math.inf:
        return value
    raise argparse.ArgumentTypeError(f"{text} is not above 1")


def _share(text: str) -> float:
    if 0 < (value := float(text)) <= 1:
        return value
    raise argparse.ArgumentTypeError(f"{text} is no share between 0 and 1")


def _whole(text: str) -> int:
    if (value := int(text)) > 0:
        return value
    raise argparse.ArgumentTypeError(f"{text} is not above 0")
