"""`lorafleet bases …`, and which base model is meant where none is named."""

from __future__ import annotations

import argparse
from typing import Any

from services.console.commands.output import Output
from services.console.core.bases import UnclearBase, only_base
from services.console.core.outcome import USAGE
from services.console.io.admin import Admin, CommandFailed

_COLUMNS = ("name", "base_model_hash", "rank_classes", "max_context_tokens", "created_at_s")


def listing(arguments: argparse.Namespace, admin: Admin, out: Output) -> None:
    out.rows(_known(admin), _COLUMNS)


def default_base(admin: Admin) -> str:
    """The hash of the base model that a registration means: nobody should have to type it."""
    bases = _known(admin)
    replicas = admin.get("/internal/fleet")["replicas"] if len(bases) > 1 else []
    try:
        return only_base(bases, replicas)
    except UnclearBase as error:
        raise CommandFailed(str(error), USAGE) from error


def _known(admin: Admin) -> list[dict[str, Any]]:
    bases: list[dict[str, Any]] = admin.get("/internal/base-models")["base_models"]
    return bases
