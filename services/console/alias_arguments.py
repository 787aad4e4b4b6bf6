"""The words of `lorafleet alias`."""

from __future__ import annotations

import argparse

from services.console.commands import aliases
from services.console.core.probing import seconds_of
from services.console.leaves import group, leaf, login, number


def add_aliases(commands: argparse._SubParsersAction) -> None:
    words = group(commands, "alias", "deploy to all or some sessions, and roll back")
    put = _change(words, "set", aliases.deploy, "point an alias at an active adapter, once its owners have it")
    put.add_argument("adapter_id")
    put.add_argument("--force", action="store_true", help="do not wait for the owners, and end a split")
    _condition(put)
    _conditions_of_guard(put)
    back = _change(words, "rollback", aliases.roll_back, "point an alias at its previous adapter, or end its split")
    _condition(back)
    split = _change(words, "split", aliases.split, "let some sessions mean another version, or change how many")
    split.add_argument("adapter_id")
    split.add_argument("percent", type=number, help="0 to 100")
    split.add_argument("--force", action="store_true", help="do not wait for the owners")
    _condition(split)
    _conditions_of_guard(split)
    promote = _change(words, "promote", aliases.promote, "let every session mean the split's version")
    promote.add_argument("--force", action="store_true", help="do not wait for the owners")
    _condition(promote)
    _conditions_of_guard(promote)
    _change(words, "unsplit", aliases.unsplit, "let no session mean the split's version any more")
    remove = _change(words, "remove", aliases.remove, "take an alias away")
    remove.add_argument("--force", action="store_true", help="also if some sessions mean another version")
    leaf(words, "list", aliases.listing, "all aliases").add_argument("--tenant")
    leaf(words, "history", aliases.history, "what an alias meant, by whom and why").add_argument("alias")


def _change(words: argparse._SubParsersAction, name: str, run: object, summary: str) -> argparse.ArgumentParser:
    made = leaf(words, name, run, summary)
    made.add_argument("alias")
    made.add_argument("--by", default=login(), help="who changes it (default: who is logged in)")
    made.add_argument("--reason", default="")
    return made


def _condition(made: argparse.ArgumentParser) -> None:
    made.add_argument("--expect", metavar="ADAPTER_ID", help="only if the alias names this adapter now")


def _conditions_of_guard(made: argparse.ArgumentParser) -> None:
    guard = made.add_argument_group("guard", "go back by itself as soon as the new version does not keep to this")
    guard.add_argument("--max-error-rate", type=number, metavar="SHARE", help="of its requests, such as 0.05")
    guard.add_argument("--max-ttft-p95-ms", type=number, metavar="MS")
    guard.add_argument("--probe", action="store_true", help="look now and then what is in its slots")
    guard.add_argument("--minimum-requests", type=int, metavar="N", help="before figures count (default 20)")
    guard.add_argument("--window", dest="window_s", type=_seconds, metavar="DURATION", help="of figures (default 60s)")
    guard.add_argument("--hold", dest="hold_s", type=_seconds, metavar="DURATION", help="then it has passed (10m)")


def _seconds(text: str) -> float:
    try:
        return seconds_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
