"""The words of `lorafleet migrate`."""

from __future__ import annotations

import argparse

from services.console.commands import migrate
from services.console.leaves import group, leaf, login, number

_ITEM_STATES = ("planned", "requested", "trained", "cut_over", "done", "failed", "held", "rolled_back")


def add_migrate(commands: argparse._SubParsersAction) -> None:
    words = group(commands, "migrate", "move to another base model")
    _route(leaf(words, "plan", migrate.plan, "what a move would take: adapters, aliases, traffic, cost"))
    start = leaf(words, "start", migrate.start, "store the plan and ask pipelines to train again")
    _route(start)
    _signed(start)
    leaf(words, "list", migrate.listing, "all migrations")
    status = _which(leaf(words, "status", migrate.status, "how far it has come, adapter by adapter"))
    status.add_argument("--state", choices=_ITEM_STATES, metavar="STATE", help=", ".join(_ITEM_STATES))
    _changing(words, "hold", migrate.turning("hold", "is held"), "ask for nothing and move nothing for now")
    _changing(words, "resume", migrate.turning("resume", "is running"), "go on")
    cut = _changing(words, "cutover", migrate.cut_over, "let aliases mean the new versions, quiet ones first")
    cut.add_argument("alias", nargs="*")
    cut.add_argument("--all", action="store_true", help="every alias whose new version passed its evaluation")
    cut.add_argument("--next", type=int, metavar="N", help="the N quietest of them")
    cut.add_argument("--force", action="store_true", help="do not wait until replicas hold the new version")
    back = _changing(words, "rollback", migrate.roll_back, "let an alias mean the version on the old base again")
    back.add_argument("alias")
    retry = _changing(words, "retry", migrate.retry, "ask pipelines once more for what has failed")
    retry.add_argument("adapter_id", nargs="*")
    retry.add_argument("--failed", action="store_true", help="everything that has failed")
    _changing(words, "finish", migrate.finish, "retire the old base, once nothing points at it")
    _changing(words, "cancel", migrate.turning("cancel", "is cancelled"), "end it; what has moved stays moved")


def _changing(words: argparse._SubParsersAction, name: str, run: object, summary: str) -> argparse.ArgumentParser:
    command = _which(leaf(words, name, run, summary))
    _signed(command)
    return command


def _route(command: argparse.ArgumentParser) -> None:
    base = "its name, or the beginning of its hash"
    command.add_argument("--from", dest="origin", required=True, metavar="BASE", help=base)
    command.add_argument("--to", dest="target", required=True, metavar="BASE", help=base)
    command.add_argument("--gpu-hours", type=number, default=0.5, help="of one adapter's training (default 0.5)")
    command.add_argument("--usd-per-gpu-hour", type=number, default=2.5, help="default 2.5")


def _which(command: argparse.ArgumentParser) -> argparse.ArgumentParser:
    command.add_argument("--migration", metavar="ID", help="default: the only one under way")
    return command


def _signed(command: argparse.ArgumentParser) -> None:
    command.add_argument("--by", default=login(), help="who wants it (default: who is logged in)")
    command.add_argument("--reason", default="")
