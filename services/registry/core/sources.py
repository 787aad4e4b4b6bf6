"""From where weights may come: an upload, or a file below a configured prefix. Nothing else is opened.

Customers' names reach the file system nowhere: a path is taken only from `weights_uri`, only by an operator's
pipeline, and only below a folder that the settings name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from services.registry.core.defects import defect
from shared.messages.adapters import Defect
from shared.messages.identity import is_digest

UPLOAD_SCHEME = "upload"
WEIGHTS_NAME = "adapter_model.safetensors"
_LONGEST_URI = 1024
_FIELD = "weights_uri"
_ESCAPE = re.compile(r"%(?P<code>[0-9A-Fa-f]{2})|%")
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")


class UploadSource(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that were uploaded under their SHA-256."""

    digest: str


class PathSource(msgspec.Struct, frozen=True, kw_only=True):
    """A `.safetensors` file, or the PEFT folder around one, by its absolute path as written."""

    path: str


Source = UploadSource | PathSource


def locate(uri: str, prefixes: Sequence[str]) -> Source | Defect:
    """What a `weights_uri` names, by its text alone; `prefixes` are absolute folders."""
    if len(uri) > _LONGEST_URI:
        return _refused("is longer than 1,024 characters")
    if uri.startswith(f"{UPLOAD_SCHEME}:"):
        digest = uri.removeprefix(f"{UPLOAD_SCHEME}:")
        return UploadSource(digest=digest) if is_digest(digest) else _refused("names an upload by no SHA-256")
    if not uri.isprintable() or not uri.isascii() or "\\" in uri or any(char in uri for char in "?#"):
        return _refused("holds a character that no path here has")
    if not uri.startswith("file:///"):
        return _refused("must look like upload:<sha256> or file:///folder/file.safetensors")
    return _locate_path(uri.removeprefix("file://"), prefixes)


def is_inside(path: str, folders: Sequence[str]) -> bool:
    """Whether an absolute path lies below one of the folders; both must be free of `..` and of links."""
    return any(path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


def pickle_fault(name: str) -> Defect | None:
    """A pickle runs code when it is opened, so it never is."""
    if not name.lower().endswith(_PICKLES):
        return None
    message = f"{name!r} may hold a pickle, which is never opened; save the adapter as safetensors."
    return defect("pickle_refused", message, _FIELD)


def suffix_fault(name: str) -> Defect | None:
    return None if name.endswith(".safetensors") else _refused("names neither a .safetensors file nor a folder")


def outside_fault(prefixes: Sequence[str]) -> Defect:
    """One sentence for all that leads out, so that an answer tells nothing about what is there."""
    allowed = ", ".join(f"file://{prefix}" for prefix in prefixes) or "none; only uploads are taken"
    return _refused(f"leads outside the folders that weights may come from ({allowed})")


def missing_fault(what: str) -> Defect:
    return defect("weights_missing", f"{what} does not exist.", _FIELD)


def special_fault() -> Defect:
    return defect("weights_missing", "weights_uri names something that is no regular file.", _FIELD)


def _locate_path(escaped: str, prefixes: Sequence[str]) -> Source | Defect:
    if any(not _harmless(match.group("code")) for match in _ESCAPE.finditer(escaped)):
        return _refused("hides a part of the path in an escape")
    try:
        path = _unescaped(escaped)
    except UnicodeDecodeError:
        return _refused("is not UTF-8")
    if any(part in ("..", ".") for part in path.split("/")):
        return _refused("holds a relative step")
    if (pickled := pickle_fault(path.rpartition("/")[2])) is not None:
        return pickled
    return PathSource(path=path) if is_inside(path, prefixes) else outside_fault(prefixes)


def _unescaped(text: str) -> str:
    """Raises UnicodeDecodeError."""
    plain = _ESCAPE.sub(lambda match: chr(int(match.group("code"), 16)), text)
    return plain.encode("latin-1").decode("utf-8")


def _harmless(code: str | None) -> bool:
    """Escapes are for letters and spaces; one that spells a separator, a dot, a percent or a control hides."""
    return code is not None and int(code, 16) >= 0x20 and chr(int(code, 16)) not in "/.\\%\x7f"


def _refused(what: str) -> Defect:
    return defect("weights_uri_refused", f"weights_uri {what}.", _FIELD)
