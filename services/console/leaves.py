"""What every command of `lorafleet` is made of: groups, and leaves that run something."""

from __future__ import annotations

import argparse
import getpass
import math


def leaf(commands: argparse._SubParsersAction, name: str, run: object, summary: str) -> argparse.ArgumentParser:
    """A command that asks the admin address, and can answer in JSON."""
    made = plain(commands, name, run, summary)
    made.add_argument("--json", action="store_true", help="print JSON instead of text")
    made.set_defaults(needs="admin")
    return made


def plain(commands: argparse._SubParsersAction, name: str, run: object, summary: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=summary)
    made.set_defaults(run=run, json=False)
    return made


def group(commands: argparse._SubParsersAction, name: str, summary: str) -> argparse._SubParsersAction:
    made = commands.add_parser(name, help=summary, description=summary)
    return made.add_subparsers(dest="action", required=True, metavar="ACTION")


def number(text: str) -> float:
    """For `type=` of an option. What is none, or not finite, is a mistake of whoever typed it: no fleet is asked."""
    value = float(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text} is no number to reckon with")
    return value


def login() -> str:
    """Who changes something if nobody says."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "operator"
