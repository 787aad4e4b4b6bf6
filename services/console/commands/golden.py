"""`lorafleet bases golden`: record what every replica of a base model has to answer. Needs the engine's packages, and
no fleet."""

from __future__ import annotations

import argparse
from pathlib import Path

from infra.models.folder import ModelUnavailable, checked_model_folder
from infra.models.golden import record_golden
from services.console.commands.output import Output
from services.console.core.outcome import REFUSED
from services.console.io.admin import CommandFailed


def record(arguments: argparse.Namespace, out: Output) -> None:
    """An answer that is there already is written anew: whoever asks has changed something on purpose."""
    try:
        path = record_golden(checked_model_folder(Path(arguments.folder)))
    except ModelUnavailable as problem:
        raise CommandFailed(str(problem), REFUSED) from problem
    out.record({"path": str(path)}, f"{path}: what every replica of this base model has to answer")
