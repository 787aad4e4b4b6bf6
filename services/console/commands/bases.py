"""`lorafleet bases …`, and which base model is meant where none is named."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec

from services.console.commands.output import Output
from services.console.core.bases import UnclearBase, only_base
from services.console.core.migrating import Unclear, base_meant
from services.console.core.outcome import USAGE
from services.console.io.admin import Admin, CommandFailed
from shared.base_model import base_model_hash, describe
from shared.messages.desired import BaseModelRecord

_COLUMNS = ("name", "base_model_hash", "rank_classes", "max_context_tokens", "created_at_s")


def listing(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    if arguments.retired:
        every = admin.every("/internal/base-models", "base_models", retired="true")
        out.rows(every, (*_COLUMNS, "retired_at_s"))
    else:
        out.rows(_known(admin), _COLUMNS)


def hash_folder(arguments: argparse.Namespace, out: Output) -> None:
    """Needs no fleet."""
    try:
        found = base_model_hash(arguments.folder)
    except (OSError, ValueError) as error:
        raise CommandFailed(str(error), USAGE) from error
    out.record({"base_model_hash": found}, found)


def add(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    """New, or known with more rank classes."""
    record = _described(arguments.folder, arguments.name, arguments.rank_classes)
    if arguments.tool_parser is not None:
        record = msgspec.structs.replace(record, tool_parser=arguments.tool_parser)
    answer = admin.put(f"/internal/base-models/{record.base_model_hash}", record)
    classes = ", ".join(str(rank) for rank in answer["rank_classes"])
    out.record(answer, f"{answer['name']} is {answer['base_model_hash']}, with rank classes {classes}")


def retire(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    known = admin.every("/internal/base-models", "base_models", retired="true")
    answer = admin.post(f"/internal/base-models/{_meant(known, arguments.base)}/retire")
    out.record(answer, f"{answer['name']} is retired")


def _described(folder: Path, name: str | None, rank_classes: tuple[int, ...]) -> BaseModelRecord:
    try:
        return describe(folder, name or folder.resolve().name, rank_classes)
    except KeyError as error:
        raise CommandFailed(f"{folder / 'config.json'} has no {error}.", USAGE) from error
    except (OSError, ValueError) as error:
        raise CommandFailed(str(error), USAGE) from error


def _meant(known: list[dict[str, Any]], text: str) -> str:
    try:
        return base_meant(known, text)
    except Unclear as error:
        raise CommandFailed(str(error), USAGE) from error


def chosen_base(admin: Admin, text: str | None) -> str:
    """The hash of the base model that a registration means, by name or the beginning of the hash; without any, nobody
    should have to type it where only one is ready."""
    bases = _known(admin)
    if text:
        return _meant(bases, text)
    replicas = admin.get("/internal/fleet")["replicas"] if len(bases) > 1 else []
    try:
        return only_base(bases, replicas)
    except UnclearBase as error:
        raise CommandFailed(str(error), USAGE) from error


def _known(admin: Admin) -> list[dict[str, Any]]:
    return admin.every("/internal/base-models", "base_models")
