"""The words of the `lorafleet` command."""

from __future__ import annotations

import argparse
from pathlib import Path

from services.console import register_arguments
from services.console.alias_arguments import add_aliases
from services.console.commands import access, adapters, bases, fleet
from services.console.core.probing import seconds_of
from services.console.evaluation_arguments import add_evaluations
from services.console.leaves import group as _group
from services.console.leaves import leaf as _leaf
from services.console.leaves import number
from services.console.leaves import plain as _plain
from services.console.limit_arguments import add_limits
from services.console.load_arguments import add_load
from services.console.migrate_arguments import add_migrate
from services.console.plan_arguments import add_plan
from services.console.usage_arguments import add_usage
from shared.chat_templates import TOOL_PARSERS
from shared.messages.adapters import STATES


def parser() -> argparse.ArgumentParser:
    """Every leaf sets `run`; `needs` says what it is called with: "admin", "door", "probe", "golden", "nothing" or
    "local". What asks the admin address can answer in JSON."""
    root = argparse.ArgumentParser(prog="lorafleet", description="Serve thousands of LoRA adapters on one base model.")
    commands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _local(commands)
    _fleet(commands)
    _adapters(commands)
    add_aliases(commands)
    _access(commands)
    add_limits(commands)
    add_usage(commands)
    add_plan(commands)
    add_load(commands)
    _merging(commands)
    add_migrate(commands)
    add_evaluations(commands)
    return root


def _local(commands: argparse._SubParsersAction) -> None:
    up = _plain(commands, "up", "up", "start the embedded fleet on this machine")
    up.add_argument("--detach", action="store_true", help="return once it serves; `lorafleet down` stops it")
    up.set_defaults(needs="local")
    _plain(commands, "down", "down", "stop the embedded fleet of this folder").set_defaults(needs="local")


def _fleet(commands: argparse._SubParsersAction) -> None:
    _leaf(commands, "status", fleet.status, "replicas, and which adapter sits in which tier")
    chat = _plain(commands, "chat", fleet.chat, "stream one answer")
    chat.add_argument("alias")
    chat.add_argument("prompt")
    chat.add_argument("--temperature", type=number, default=0.0)
    chat.add_argument("--max-tokens", type=int, default=200)
    chat.add_argument("--verbose", action="store_true", help="also print adapter, tier and request id")
    chat.set_defaults(needs="door")
    _probe(commands)


def _probe(commands: argparse._SubParsersAction) -> None:
    probe = _leaf(commands, "probe", "probe", "ask canaries now and then: does every adapter speak for itself?")
    probe.add_argument("--rate", type=_rate, default=1.0, help="questions a second (default 1)")
    probe.add_argument("--for", dest="for_s", type=_seconds, metavar="DURATION", help="90s, 10m, 1h; else until Ctrl-C")
    probe.add_argument("--canaries", type=Path, metavar="FOLDER", help="bring in the canaries in it first")
    probe.add_argument("--base", help="base model hash (default: the only one with a ready replica)")
    probe.add_argument("--metrics-port", type=int, default=0, metavar="PORT", help="serve /metrics on 127.0.0.1")
    probe.set_defaults(needs="probe")


def _rate(text: str) -> float:
    if (rate := float(text)) > 0:
        return rate
    raise argparse.ArgumentTypeError(f"{text} is not above 0")


def _seconds(text: str) -> float:
    try:
        return seconds_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _adapters(commands: argparse._SubParsersAction) -> None:
    group = _group(commands, "adapters", "register and inspect adapters")
    register_arguments.add(group)
    listing = _leaf(group, "list", adapters.listing, "all adapters")
    listing.add_argument("--tenant")
    listing.add_argument("--status", choices=STATES, metavar="STATUS", help=", ".join(STATES))
    _leaf(group, "show", adapters.show, "one adapter with its history").add_argument("adapter_id")
    _leaf(group, "pin", adapters.pin, "keep an adapter in a slot of every owner").add_argument("adapter_id")
    _leaf(group, "unpin", adapters.unpin, "let its traffic decide again").add_argument("adapter_id")
    _leaf(group, "retire", adapters.retire, "drop an adapter that no alias names").add_argument("adapter_id")
    _bases(_group(commands, "bases", "base models"))


def _bases(group: argparse._SubParsersAction) -> None:
    listing = _leaf(group, "list", bases.listing, "all base models the fleet knows")
    listing.add_argument("--retired", action="store_true", help="those that are retired, too")
    add = _leaf(group, "add", bases.add, "let adapters be registered for a base model")
    add.add_argument("folder", type=Path, help="the base model's folder")
    add.add_argument("--rank-classes", type=_ranks, default=(16,), metavar="RANKS", help="one pool each, as in 16,64")
    add.add_argument("--name", help="what clients call it (default: the folder's name)")
    parser = "how it writes calls of tools; '' for not at all (default: what its chat template shows)"
    add.add_argument("--tool-parser", choices=("", *TOOL_PARSERS), help=parser)
    _leaf(group, "retire", bases.retire, "take a base model out, once nothing points at it").add_argument("base")
    hashing = _plain(group, "hash", bases.hash_folder, "the identity of a base model's folder")
    hashing.add_argument("folder", type=Path)
    hashing.add_argument("--json", action="store_true", help="print JSON instead of text")
    hashing.set_defaults(needs="nothing")
    golden = _leaf(group, "golden", "golden", "record the answer that every replica of a base model has to give")
    golden.add_argument("folder", help="the base model's folder; the answer is written into it")
    golden.set_defaults(needs="golden")


def _ranks(text: str) -> tuple[int, ...]:
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text} is no list of ranks such as 16,64") from error


def _access(commands: argparse._SubParsersAction) -> None:
    keys = _group(commands, "keys", "API keys")
    create = _leaf(keys, "create", access.key_create, "make a key for a tenant")
    create.add_argument("--tenant", required=True)
    create.add_argument("--base", action="store_true", help="it may call the base model too")
    _leaf(keys, "list", access.key_list, "all keys, without the keys themselves")
    _leaf(keys, "revoke", access.key_revoke, "end a key").add_argument("key_id")
    tenants = _group(commands, "tenants", "customers")
    made = _leaf(tenants, "create", access.tenant_create, "add a customer")
    made.add_argument("tenant")
    made.add_argument("--weight", type=number, help="its share among customers (default: 1, or what it has)")
    _leaf(tenants, "list", access.tenant_list, "all customers")


def _merging(commands: argparse._SubParsersAction) -> None:
    merge = _plain(commands, "merge", "merge", "merge an adapter into its base: one model folder, for one customer")
    merge.add_argument("adapter", help="a PEFT folder, the safetensors file in one, or the id of a registered adapter")
    merge.add_argument("--base", required=True, metavar="FOLDER", help="the base model's folder")
    merge.add_argument("--out", required=True, metavar="FOLDER", help="the new folder; nothing is overwritten")
    merge.add_argument("--json", action="store_true", help="print JSON instead of text")
    merge.set_defaults(needs="merge")
