"""Is this file what the announcement says, and can the fleet serve it? Every fault at once."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from services.registry.core.defects import capped, defect
from services.registry.core.files.description import Surroundings, check_description
from services.registry.core.files.file_checks import Expected, check_finite, check_tensors
from services.registry.core.files.peft_config import Beside, check_config, read_config
from services.registry.core.files.safetensors_header import Header
from services.registry.core.files.terms import Terms, read_terms
from shared.messages.adapters import AdapterRegistered, Defect


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    largest_file_bytes: int


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What reading a weights file from end to end showed.

    `header` is None if `fault` says why there is none. A file over the size limit is not read further:
    its `digest` is then empty. `config` is the adapter_config.json beside it, if there is one.
    """

    size_bytes: int
    digest: str = ""
    header: Header | None = None
    fault: str | None = None
    not_finite: tuple[str, ...] = ()
    config: bytes | None = None


def verify(
    announced: AdapterRegistered, around: Surroundings, file: FileFacts | Defect, limits: Limits
) -> tuple[Defect, ...]:
    """All that is wrong, or nothing. `file` is a Defect if there was none that may be opened."""
    terms = read_terms(announced)
    described = (*check_description(announced, around), *terms.defects)
    if isinstance(file, Defect):
        return capped((*described, file))
    return capped((*described, *_check_bytes(announced, file, limits), *_check_content(announced, around, file, terms)))


def _check_bytes(announced: AdapterRegistered, file: FileFacts, limits: Limits) -> Iterator[Defect]:
    allowed = limits.largest_file_bytes
    if file.size_bytes > allowed:
        message = f"The weights file is larger than the {allowed} bytes allowed."
        yield defect("file_too_large", message, "weights_uri", found="more bytes", allowed=f"{allowed} bytes")
    elif file.digest != announced.checksum:
        message = f"The SHA-256 of the weights file is {file.digest}, not the announced checksum."
        yield defect("checksum_mismatch", message, "checksum", found=file.digest, allowed=announced.checksum)
    if file.fault is not None:
        message = f"The weights file is no whole safetensors file: {file.fault}."
        yield defect("not_safetensors", message, "weights_uri", found=file.fault, allowed="a whole safetensors file")


def _check_content(
    announced: AdapterRegistered, around: Surroundings, file: FileFacts, terms: Terms
) -> Iterator[Defect]:
    beside = _beside(announced, file)
    if file.header is not None:
        excluded = None if beside is None else beside.excluded
        yield from check_tensors(
            file.header, Expected(announced=announced, terms=terms, base=around.base, excluded=excluded)
        )
    yield from check_finite(file.not_finite)
    if beside is not None:
        yield from check_config(beside, announced, terms, around.base)


def _beside(announced: AdapterRegistered, file: FileFacts) -> Beside | None:
    """What PEFT wrote about the weights: the file that lies there, or what an upload's sender says of it."""
    if file.config is not None:
        return read_config(file.config)
    return None if announced.peft_config is None else read_config(announced.peft_config.encode())
