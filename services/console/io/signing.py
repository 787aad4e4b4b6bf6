"""Ed25519 keys in PEM files, by cryptography."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key


class KeyUnusable(Exception):
    """One sentence."""


def public_key(file: Path) -> str:
    """In hex, of a file with the public or the private key. Raises KeyUnusable."""
    raw = _read(file)
    key = _loaded(file, raw) if b"PRIVATE KEY" in raw else _public(file, raw)
    public = key.public_key() if isinstance(key, Ed25519PrivateKey) else key
    return public.public_bytes_raw().hex()


def signed(file: Path, message: bytes) -> tuple[str, str]:
    """The key's id in the registry, and its signature in Base64. Raises KeyUnusable."""
    key = _loaded(file, _read(file))
    key_id = hashlib.sha256(key.public_key().public_bytes_raw()).hexdigest()[:16]
    return key_id, base64.b64encode(key.sign(message)).decode()


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise KeyUnusable(f"{file} cannot be read: {error.strerror}.") from error


def _loaded(file: Path, raw: bytes) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(raw, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeyUnusable(f"{file} holds no private key in PEM without a passphrase.") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyUnusable(f"{file} holds another kind of key than Ed25519.")
    return key


def _public(file: Path, raw: bytes) -> Ed25519PublicKey:
    try:
        key = load_pem_public_key(raw)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise KeyUnusable(f"{file} holds no public key in PEM.") from error
    if not isinstance(key, Ed25519PublicKey):
        raise KeyUnusable(f"{file} holds another kind of key than Ed25519.")
    return key
