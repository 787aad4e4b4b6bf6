"""`lorafleet merge`: one adapter and its base become one model folder. Needs the engine's packages, and no fleet."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path
from urllib.parse import quote

import msgspec

from services.console.commands.adapters import read_config
from services.console.commands.output import Output
from services.console.core.merging import MergeTerms, not_plain, terms_of_folder, terms_of_record
from services.console.core.outcome import BROKEN, REFUSED, UNREACHABLE, USAGE
from services.console.core.peft_folder import UnclearConfig
from services.console.io.admin import Admin, CommandFailed
from shared.merging.folder import merge_folder
from shared.merging.pairs import MergeRefused, modules_of
from shared.store.port import ObjectMissing, ObjectStore, StoreUnavailable, weights_key


def from_folder(arguments: argparse.Namespace, out: Output) -> None:
    """Merge a PEFT folder, or the safetensors file in one."""
    given = Path(arguments.adapter)
    weights = given / "adapter_model.safetensors" if given.is_dir() else given
    config = read_config(weights.parent, weights)
    if reason := not_plain(config):
        raise CommandFailed(f"{weights.parent} cannot be merged: {reason}.", REFUSED)
    try:
        terms = terms_of_folder(config, weights.parent.resolve().name, modules_of(weights))
    except (UnclearConfig, MergeRefused) as error:
        raise CommandFailed(str(error), REFUSED) from error
    _merge(arguments, weights, terms, out)


def from_registry(arguments: argparse.Namespace, admin: Admin, store: ObjectStore, out: Output) -> None:
    """Merge a registered adapter: its description from the registry, its file from the store."""
    answer = admin.get(f"/internal/adapters/{quote(arguments.adapter, safe='')}")
    try:
        terms = terms_of_record(answer)
    except msgspec.ValidationError as error:
        raise CommandFailed(f"The registry does not describe {arguments.adapter}: {error}.", BROKEN) from error
    if not terms.digest:
        raise CommandFailed(f"{terms.adapter_id} has no verified weights in the store.", REFUSED)
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "adapter_model.safetensors"
        try:
            asyncio.run(_fetch(store, terms.digest, weights))
        except ObjectMissing as error:
            raise CommandFailed(f"{terms.adapter_id} is not in the store: {error}.", REFUSED) from error
        except StoreUnavailable as error:
            raise CommandFailed(f"{terms.adapter_id} cannot be fetched: {error}.", UNREACHABLE) from error
        except OSError as error:
            raise CommandFailed(f"{weights} cannot be written: {error.strerror or error}.", REFUSED) from error
        _merge(arguments, weights, terms, out)


async def _fetch(store: ObjectStore, digest: str, target: Path) -> None:
    with target.open("wb") as file:
        async for chunk in store.read(weights_key(digest)):
            file.write(chunk)


def _merge(arguments: argparse.Namespace, weights: Path, terms: MergeTerms, out: Output) -> None:
    base, target = Path(arguments.base), Path(arguments.out)
    if not base.is_dir():
        raise CommandFailed(f"{base} is no folder: give the base model's as --base.", USAGE)
    try:
        merged = merge_folder(base, weights, terms, target)
    except MergeRefused as error:
        raise CommandFailed(str(error), REFUSED) from error
    sentence = f"{target}: {merged.adapter_id} in {len(merged.scales)} modules of base {merged.base_model_hash[:12]}"
    out.record(msgspec.to_builtins(merged), sentence)
