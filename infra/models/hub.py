"""A model folder from the Hugging Face hub; the only module here that imports its client."""

from __future__ import annotations

import shutil
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from huggingface_hub.utils.tqdm import disable_progress_bars

from infra.models.folder import ModelUnavailable

_WANTED = ["*.json", "*.jinja", "*.safetensors"]


def download_snapshot(hub_id: str, folder: Path) -> None:
    """Every config, tokenizer and safetensors file of the hub's model into `folder`.

    Raises ModelUnavailable when the hub cannot be reached, does not know the id, or wants a login.
    """
    disable_progress_bars()
    try:
        snapshot_download(hub_id, local_dir=folder, allow_patterns=_WANTED)
    except HFValidationError as invalid:
        raise ModelUnavailable(f"{hub_id!r} is neither a folder here nor a valid hub id") from invalid
    except (HfHubHTTPError, LocalEntryNotFoundError, ConnectionError, OSError) as failure:
        raise ModelUnavailable(
            f"the model hub did not give {hub_id!r} ({_first_line(failure)}): check the id and the network, "
            "or set LORAFLEET_MODEL to a model folder on this machine"
        ) from failure
    shutil.rmtree(folder / ".cache", ignore_errors=True)  # the client's notes on what it downloaded


def _first_line(failure: Exception) -> str:
    lines = str(failure).strip().splitlines()
    return lines[0].strip() if lines else type(failure).__name__
