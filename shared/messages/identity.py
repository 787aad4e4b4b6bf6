"""Names that are safe to compare, log and put into subjects and paths.

Adapter ids and aliases come from customers. Neither ever becomes part of a path or a subject: files are
named by digest, keys by hash (`key_of`).
"""

from __future__ import annotations

import re

import msgspec

try:  # as `random` does: without OpenSSL, whose code takes longer to come into the processor's caches than to run
    from _sha256 import sha256  # type: ignore[import-not-found]  # a part of CPython without a stub
except ImportError:
    from hashlib import sha256

_ADAPTER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_TENANT_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_ALIAS = re.compile(r"[a-z0-9][a-z0-9-]{0,62}/[a-z0-9][a-z0-9._-]{0,62}(:[a-z0-9][a-z0-9._-]{0,31})?")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,64}")

ADAPTER_ID_GRAMMAR = "1 to 128 of A-Z a-z 0-9 . _ -, first a letter or digit"
TENANT_ID_GRAMMAR = "1 to 63 of a-z 0-9 -, first a letter or digit"
ALIAS_GRAMMAR = "tenant/name or tenant/name:stage in lower case, digits and . _ -"


class AdapterKey(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One immutable adapter: its id and the SHA-256 (hex) of its weights file."""

    adapter_id: str
    digest: str


def is_adapter_id(text: str) -> bool:
    return _ADAPTER_ID.fullmatch(text) is not None and ".." not in text


def is_tenant_id(text: str) -> bool:
    return _TENANT_ID.fullmatch(text) is not None


def is_alias(text: str) -> bool:
    return _ALIAS.fullmatch(text) is not None and ".." not in text


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def is_subject_token(text: str) -> bool:
    """Replica, gateway and request ids are one token of a subject."""
    return _TOKEN.fullmatch(text) is not None


def key_of(name: str) -> str:
    """The key of a customer-chosen name in a key-value bucket: SHA-256, hex."""
    digest: str = sha256(name.encode()).hexdigest()
    return digest
