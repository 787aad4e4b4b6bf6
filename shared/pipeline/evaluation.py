"""Results of an evaluation that a pipeline ran itself, signed with its key."""

from __future__ import annotations

import base64
from collections.abc import Callable

import msgspec

from shared.messages.results import PipelineResults, signed_bytes


class Signer(msgspec.Struct, frozen=True, kw_only=True):
    """`sign` makes the Ed25519 signature of some bytes, such as `Ed25519PrivateKey.sign` of the package cryptography;
    `key_id` is what the registry calls the public key."""

    key_id: str
    sign: Callable[[bytes], bytes]


class SignedResults(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `POST /internal/adapters/{id}/evaluations`."""

    results: PipelineResults
    signature: str
    key_id: str


def signed(adapter_id: str, digest: str, results: PipelineResults, signer: Signer) -> SignedResults:
    """Of this version alone: its id and its bytes are signed along."""
    signature = signer.sign(signed_bytes(adapter_id, digest, results))
    return SignedResults(results=results, signature=base64.b64encode(signature).decode(), key_id=signer.key_id)
