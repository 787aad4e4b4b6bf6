"""What a batch is made of: folders of PEFT folders, or a file with a line for each adapter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from shared.messages.adapters import AdapterRegistered
from shared.pipeline.batch import AnnouncedWish, FolderWish, Wish
from shared.pipeline.folder import CONFIG, Identity
from shared.pipeline.outcome import UnclearFolder


class UnclearList(Exception):
    """The list of adapters cannot be read; one sentence with the line."""


class Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One adapter in a folder; what is left out is as for the whole batch."""

    folder: str
    tenant_id: str | None = None
    base_model_hash: str | None = None
    adapter_id: str | None = None
    version: str | None = None
    alias: str | None = None
    predecessor_id: str | None = None
    dataset_uri: str | None = None
    evaluated_by: str | None = None


class _Kind(msgspec.Struct, frozen=True):
    folder: object = None


def in_folders(paths: Sequence[Path], usual: Identity) -> list[Wish]:
    """Every path is a PEFT folder, or holds some. Raises UnclearFolder for one that is neither."""
    return [FolderWish(folder=folder, identity=usual) for path in paths for folder in _peft_folders(path)]


def in_lines(text: bytes, beside: Path, usual: Identity) -> list[Wish]:
    """JSON lines: `{"folder": …}` relative to the folder `beside`, with what differs from `usual`, or a whole
    announcement. Raises UnclearList."""
    lines = ((number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip())
    return [_wish(number, line, beside, usual) for number, line in lines]


def _peft_folders(path: Path) -> Iterator[Path]:
    if (path / CONFIG).is_file():
        yield path
        return
    inside = sorted(below.parent for below in path.glob(f"*/{CONFIG}"))
    if not inside:
        raise UnclearFolder(f"{path} is no PEFT folder and holds none: there is no {CONFIG}.")
    yield from inside


def _wish(number: int, line: bytes, beside: Path, usual: Identity) -> Wish:
    try:
        if msgspec.json.decode(line, type=_Kind).folder is None:
            return AnnouncedWish(announced=msgspec.json.decode(line, type=AdapterRegistered))
        said = msgspec.json.decode(line, type=Line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        reason = str(error).replace("`", "")
        raise UnclearList(f"Line {number} is neither a folder nor an announcement: {reason}.") from error
    different = {name: value for name, value in msgspec.structs.asdict(said).items() if value is not None}
    folder = beside / different.pop("folder")
    return FolderWish(folder=folder, identity=msgspec.structs.replace(usual, **different))
