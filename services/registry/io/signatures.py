"""Ed25519 signatures of pipelines."""

from __future__ import annotations

import base64

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

KEY_BYTES = 32


def is_public_key(text: str) -> bool:
    """64 hexadecimal digits: the 32 bytes of a public key."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(text))
    except ValueError:
        return False
    return len(text) == 2 * KEY_BYTES


def is_signed(public_key: str, signature: str, message: bytes) -> bool:
    """Whether `signature` (Base64) over `message` was made with the private key that belongs to `public_key` (hex)."""
    try:
        raw = base64.b64decode(signature, validate=True)
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key)).verify(raw, message)
    except (InvalidSignature, ValueError):
        return False
    return True
