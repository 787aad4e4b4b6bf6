"""From a folder as PEFT's save_pretrained leaves it to the announcement of it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from shared.messages.adapters import EVALUATORS, AdapterRegistered
from shared.pipeline.outcome import UnclearFolder

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What a registration needs of adapter_config.json; whether it is any good is for the registry to say."""

    r: int
    lora_alpha: float
    target_modules: list[str] | str
    use_rslora: bool = False
    rank_pattern: dict[str, int] | None = None
    alpha_pattern: dict[str, float] | None = None


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """`checksum` is the SHA-256 of the weights, `text` what adapter_config.json says to the letter."""

    path: Path
    config: Config
    checksum: str
    text: str

    @property
    def weights(self) -> Path:
        return self.path / WEIGHTS


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller adds to a folder. Left out, `adapter_id` is made of tenant, folder name and checksum, and
    `version` of the checksum; the other fields are those of an announcement."""

    tenant_id: str
    base_model_hash: str
    adapter_id: str | None = None
    version: str | None = None
    alias: str | None = None
    predecessor_id: str | None = None
    dataset_uri: str | None = None
    evaluated_by: str = EVALUATORS[0]


def read_folder(path: Path) -> Folder:
    """Reads all of the weights once. Raises UnclearFolder with what is missing or unclear."""
    if path.is_file():
        raise UnclearFolder(f"{path} is a file: give the folder around it.")
    for name in (CONFIG, WEIGHTS):
        if not (path / name).is_file():
            raise UnclearFolder(f"{path / name} is missing: give a folder as PEFT's save_pretrained leaves it.")
    try:
        text = (path / CONFIG).read_text(encoding="utf-8")
        config = msgspec.json.decode(text, type=Config)
        with (path / WEIGHTS).open("rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        reason = str(error).replace("`", "")
        raise UnclearFolder(f"{path / CONFIG} is no LoRA adapter's as PEFT saves it: {reason}.") from error
    except OSError as error:
        raise UnclearFolder(f"{path} cannot be read: {error.strerror}.") from error
    return Folder(path=path, config=config, checksum=checksum, text=text)


def announcement(folder: Folder, identity: Identity, weights_uri: str) -> AdapterRegistered:
    """The announcement of a folder whose weights are at `weights_uri`."""
    config, short = folder.config, folder.checksum[:8]
    targets = config.target_modules
    return AdapterRegistered(
        adapter_id=identity.adapter_id or f"{identity.tenant_id}-{folder.path.resolve().name}-{short}",
        tenant_id=identity.tenant_id,
        version=identity.version or short,
        base_model_hash=identity.base_model_hash,
        rank=config.r,
        alpha=config.lora_alpha,
        target_modules=targets if isinstance(targets, str) else tuple(sorted(targets)),
        weights_uri=weights_uri,
        checksum=folder.checksum,
        use_rslora=config.use_rslora,
        rank_pattern=config.rank_pattern or {},
        alpha_pattern=config.alpha_pattern or {},
        alias=identity.alias,
        predecessor_id=identity.predecessor_id,
        dataset_uri=identity.dataset_uri,
        evaluated_by=identity.evaluated_by,
        peft_config=folder.text,
    )
