"""What a base model folder must hold, whoever made it."""

from __future__ import annotations

from pathlib import Path

from shared.base_model import identity_files


class ModelUnavailable(Exception):
    """No base model folder could be provided; the message is one sentence an operator can act on."""


def checked_model_folder(folder: Path) -> Path:
    """The folder itself, resolved, once config, tokenizer and weights are seen in it.

    Raises ModelUnavailable naming the first file that is missing.
    """
    if not folder.is_dir():
        raise ModelUnavailable(f"{folder} is not a folder, so it is no base model")
    try:
        identity_files(folder)
    except FileNotFoundError as missing:
        raise ModelUnavailable(str(missing)) from missing
    return folder.resolve()
