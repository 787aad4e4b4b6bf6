"""The words of `lorafleet usage`."""

from __future__ import annotations

import argparse
import time

from services.console.commands import usage
from services.console.core.moments import moment_of
from services.console.leaves import group, leaf


def add_usage(commands: argparse._SubParsersAction) -> None:
    words = group(commands, "usage", "which requests there were, and what they come to")
    listing = leaf(words, "list", usage.listing, "single requests, the newest first")
    listing.add_argument("--adapter", metavar="ID", help="that this version served")
    listing.add_argument("--tenant")
    listing.add_argument("--alias")
    listing.add_argument("--limit", type=int, default=100, help="so many (default 100)")
    listing.add_argument("--all", action="store_true", help="as many as there are")
    totals = leaf(words, "totals", usage.totals, "requests and tokens of each tenant, adapter or alias")
    totals.add_argument("--by", choices=("tenant", "adapter", "alias"), default="tenant")
    stats = leaf(words, "stats", usage.stats, "an adapter's minutes: requests, tokens/s, GPU hits, errors")
    stats.add_argument("adapter_id")
    for said in (listing, totals, stats):
        said.add_argument("--since", type=_moment, metavar="MOMENT", help="1h, 7d or 2026-11-30T10:00 (UTC)")
        said.add_argument("--until", type=_moment, metavar="MOMENT")
    compared = leaf(words, "reconcile", usage.reconcile, "compare a tenant's sums with its single requests")
    compared.add_argument("--tenant", required=True)


def _moment(text: str) -> float:
    try:
        return moment_of(text, time.time())
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
