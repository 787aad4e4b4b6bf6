"""The words of `lorafleet adapters register` and `register-all`."""

from __future__ import annotations

import argparse
from pathlib import Path

from services.console.commands import adapters, batch
from services.console.leaves import leaf, number
from shared.messages.adapters import EVALUATORS


def add(group: argparse._SubParsersAction) -> None:
    one = leaf(group, "register", adapters.register, "upload a PEFT folder and register it")
    one.add_argument("folder", nargs="+", help="one folder, as PEFT's save_pretrained leaves it")
    one.add_argument("--id", help="adapter id (default: tenant, folder name and checksum)")
    one.add_argument("--version", help="default: the first digits of the checksum")
    one.add_argument("--alias", help="deploy under this alias once it is active")
    one.add_argument("--predecessor", metavar="ID", help="the version it is to replace, also on another base")
    one.add_argument("--dataset", metavar="URI", help="where its training data is; a migration hands it back")
    one.add_argument(
        "--evaluated-by", choices=EVALUATORS, default=EVALUATORS[0], help="pipeline: it posts signed results itself"
    )
    every = leaf(group, "register-all", batch.register_all, "register thousands; run it again to go on")
    every.add_argument("folder", nargs="*", help="a PEFT folder, or a folder of them")
    every.add_argument("--from", dest="listed", type=Path, metavar="FILE", help="JSON lines: folders or announcements")
    every.add_argument(
        "--outcomes", type=Path, default=Path("outcomes.jsonl"), metavar="FILE", help="one line for each"
    )
    every.add_argument("--at-once", type=int, default=16, metavar="N", help="registrations under way (default 16)")
    every.add_argument("--patience", type=number, default=300.0, metavar="SECONDS", help="with a registry that is away")
    for register in (one, every):
        register.add_argument("--tenant", required=True)
        register.add_argument(
            "--base", help="its name or the beginning of its hash (default: the only one that is ready)"
        )
        register.add_argument("--wait", action="store_true", help="return once it is active, or say why it is not")
        register.add_argument("--timeout", type=number, default=120.0, metavar="SECONDS", help="of --wait")
