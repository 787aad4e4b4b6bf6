"""golden.json beside a base model's files. It is no part of the model's identity: it carries it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from services.replica_worker.core.golden import FILE_NAME, Golden


class GoldenUnreadable(Exception):
    """There is a file, and it is no recorded answer; the message is one sentence."""


def read_golden(folder: Path) -> Golden | None:
    """None if the folder has none. Raises GoldenUnreadable."""
    path = folder / FILE_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=Golden)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise GoldenUnreadable(f"{path} is no recorded answer: {error}") from error


def write_golden(folder: Path, golden: Golden) -> Path:
    """The whole file or none: written beside and renamed. Raises OSError; an older one is still there then."""
    path, partial = folder / FILE_NAME, folder / f".{FILE_NAME}.partial"
    partial.write_bytes(msgspec.json.format(msgspec.json.encode(golden), indent=1) + b"\n")
    return partial.replace(path)
