"""What a pipeline found out about its own adapter, and the bytes that it signs."""

from __future__ import annotations

import msgspec


class ResultCase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One question of the pipeline's own evaluation; `score` is from 0 to 1."""

    case: int
    score: float
    prompt: str = ""
    expected: str = ""
    output: str = ""


class PipelineResults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Scores are from 0 to 1. Without `predecessor_score` nothing is compared with the version before."""

    score: float
    predecessor_score: float | None = None
    notes: str = ""
    cases: tuple[ResultCase, ...] = ()


def signed_bytes(adapter_id: str, digest: str, results: PipelineResults) -> bytes:
    """What the Ed25519 signature is over: JSON with sorted keys, without spaces, every field present, fractions as
    fractions (`1.0`). Id and digest are in it, so that a signature says nothing about another version."""
    said = {"adapter_id": adapter_id, "digest": digest, "results": results}
    return msgspec.json.encode(said, order="sorted")
