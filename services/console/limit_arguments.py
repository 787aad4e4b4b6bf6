"""The words of `lorafleet limits`."""

from __future__ import annotations

import argparse

from services.console.commands import limits
from services.console.leaves import group, leaf

_NONE = "none"


def add_limits(commands: argparse._SubParsersAction) -> None:
    words = group(commands, "limits", "how much customers may ask for")
    show = leaf(words, "show", limits.show, "the limits of a tenant and of its keys")
    show.add_argument("tenant")
    put = leaf(words, "set", limits.put, "change the limits that are named, of a tenant or of one key")
    put.add_argument("tenant")
    put.add_argument("--key", metavar="KEY_ID", help="of this key alone, besides those of its tenant")
    put.add_argument("--requests-per-min", type=_limit, metavar="N", help="in any 60 seconds; or none")
    put.add_argument("--tokens-per-min", type=_limit, metavar="N", help="prompts and answers; or none")
    put.add_argument("--streams", type=_limit, metavar="N", help="requests that run at once; or none")


def _limit(text: str) -> int | str:
    """Of what is given, `none` takes a limit away; what is not given stays."""
    if text == _NONE:
        return _NONE
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text} is neither a number above 0 nor none")
