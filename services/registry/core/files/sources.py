"""From where weights may come: an upload, or a file below a configured prefix. Nothing else is opened.

Customers' names reach no file system and no bucket: a path or key is taken only from `weights_uri`, only by an
operator's pipeline, and only below a folder or a bucket's prefix that the settings name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from services.registry.core.defects import defect, quoted
from shared.messages.adapters import Defect
from shared.messages.identity import is_digest

UPLOAD_SCHEME = "upload"
WEIGHTS_NAME = "adapter_model.safetensors"
_FILE, _S3 = "file://", "s3://"
_LONGEST_URI = 1024
_FIELD = "weights_uri"
_ESCAPE = re.compile(r"%(?P<code>[0-9A-Fa-f]{2})|%")
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_KEY = re.compile(rf"{_PART}(/{_PART})*", re.ASCII)
_BUCKET_PREFIX = re.compile(rf"s3://[a-z0-9][a-z0-9.-]{{1,61}}[a-z0-9](/{_PART})*", re.ASCII)


class Prefixes(msgspec.Struct, frozen=True, kw_only=True):
    """`folders` are absolute paths, `buckets` `s3://bucket` or `s3://bucket/prefix`; none ends in a slash."""

    folders: tuple[str, ...] = ()
    buckets: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        return ", ".join((*(f"{_FILE}{one}" for one in self.folders), *self.buckets)) or "none; only uploads are taken"


class UploadSource(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that were uploaded under their SHA-256."""

    digest: str


class PathSource(msgspec.Struct, frozen=True, kw_only=True):
    """A `.safetensors` file, or the PEFT folder around one: `steps` lead there from one of the folders."""

    folder: str
    steps: tuple[str, ...]


class ObjectSource(msgspec.Struct, frozen=True, kw_only=True):
    """The same in a bucket: `key` is what follows one of the bucket prefixes."""

    bucket: str
    key: str


Source = UploadSource | PathSource | ObjectSource


def prefixes_of(texts: Iterable[str]) -> Prefixes:
    """Raises ValueError naming the text that is no prefix."""
    folders, buckets = [], []
    for text in texts:
        if text.startswith(f"{_FILE}/"):
            folders.append(text.removeprefix(_FILE).rstrip("/") or "/")
        elif _BUCKET_PREFIX.fullmatch(text.rstrip("/")):
            buckets.append(text.rstrip("/"))
        else:
            raise ValueError(f"{text!r} does not look like file:///folder or s3://bucket/prefix")
    return Prefixes(folders=tuple(folders), buckets=tuple(buckets))


def locate(uri: str, prefixes: Prefixes) -> Source | Defect:
    """What a `weights_uri` names, by its text alone."""
    if len(uri) > _LONGEST_URI:
        return _refused("is longer than 1,024 characters", f"{len(uri)} characters", "1,024 characters")
    if uri.startswith(f"{UPLOAD_SCHEME}:"):
        digest = uri.removeprefix(f"{UPLOAD_SCHEME}:")
        return UploadSource(digest=digest) if is_digest(digest) else _refused("names an upload by no SHA-256", uri)
    if not uri.isprintable() or not uri.isascii() or any(char in uri for char in "\\?#"):
        return _refused("holds a character that no path here has", uri)
    if uri.startswith(_S3):
        return _locate_object(uri, prefixes)
    if uri.startswith(f"{_FILE}/"):
        return _locate_path(uri.removeprefix(_FILE), prefixes)
    return _refused("must look like upload:<sha256>, file:///folder/file.safetensors or s3://bucket/key", uri)


def pickle_fault(name: str) -> Defect | None:
    """A pickle runs code when it is opened, so it never is."""
    if not name.lower().endswith(_PICKLES):
        return None
    message = f"{quoted(name)} may hold a pickle, which is never opened; save the adapter as safetensors."
    return defect("pickle_refused", message, _FIELD, found=name, allowed=WEIGHTS_NAME)


def suffix_fault(name: str) -> Defect | None:
    return None if name.endswith(".safetensors") else _refused("names neither a .safetensors file nor a folder", name)


def outside_fault(prefixes: Prefixes, uri: str) -> Defect:
    """One sentence for all that leads out, so that an answer tells nothing about what is there."""
    message = f"weights_uri leads outside the folders that weights may come from ({prefixes.shown})."
    return defect("weights_uri_refused", message, _FIELD, found=uri, allowed=prefixes.shown)


def missing_fault(what: str) -> Defect:
    return defect("weights_missing", f"{what} does not exist.", _FIELD, found="nothing", allowed="a .safetensors file")


def special_fault() -> Defect:
    message = "weights_uri names something that is no regular file."
    return defect("weights_missing", message, _FIELD, found="no regular file", allowed="a .safetensors file")


def symlink_fault(name: str) -> Defect:
    """Wherever it leads: what it means may be another file tomorrow."""
    message = f"{quoted(name)} in weights_uri is a symbolic link, and none is followed."
    return defect("symlink_refused", message, _FIELD, found=name, allowed="folders and regular files")


def _locate_path(escaped: str, prefixes: Prefixes) -> Source | Defect:
    if any(not _harmless(match.group("code")) for match in _ESCAPE.finditer(escaped)):
        return _refused("hides a part of the path in an escape", escaped)
    try:
        path = _unescaped(escaped)
    except UnicodeDecodeError:
        return _refused("is not UTF-8", escaped)
    steps = [step for step in path.split("/") if step]
    if ".." in steps or "." in steps:
        return _refused("holds a relative step", path)
    if (pickled := pickle_fault(path.rpartition("/")[2])) is not None:
        return pickled
    for folder in sorted(prefixes.folders, key=len, reverse=True):
        if path.startswith(f"{folder.rstrip('/')}/"):
            below = tuple(step for step in path[len(folder) :].split("/") if step)
            return PathSource(folder=folder, steps=below) if below else outside_fault(prefixes, f"{_FILE}{path}")
    return outside_fault(prefixes, f"{_FILE}{path}")


def _locate_object(uri: str, prefixes: Prefixes) -> Source | Defect:
    for bucket in sorted(prefixes.buckets, key=len, reverse=True):
        key = uri.removeprefix(f"{bucket}/").rstrip("/")
        if not uri.startswith(f"{bucket}/") or not key:
            continue
        if not _KEY.fullmatch(key):
            return _refused(
                "has a key of other parts than A-Z a-z 0-9 . _ -, each beginning with a letter or digit", uri
            )
        return pickle_fault(key.rpartition("/")[2]) or ObjectSource(bucket=bucket, key=key)
    return outside_fault(prefixes, uri)


def _unescaped(text: str) -> str:
    """Raises UnicodeDecodeError."""
    plain = _ESCAPE.sub(lambda match: chr(int(match.group("code"), 16)), text)
    return plain.encode("latin-1").decode("utf-8")


def _harmless(code: str | None) -> bool:
    """Escapes are for letters and spaces; one that spells a separator, a dot, a percent or a control hides."""
    return code is not None and int(code, 16) >= 0x20 and chr(int(code, 16)) not in "/.\\%\x7f"


def _refused(
    what: str, found: str, allowed: str = "an upload, or a file below a prefix that the settings name"
) -> Defect:
    return defect("weights_uri_refused", f"weights_uri {what}.", _FIELD, found=found, allowed=allowed)
