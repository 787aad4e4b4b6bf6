"""Whole answers from one replica, for evaluations: the registry asks, scores and decides."""

from __future__ import annotations

import msgspec

from shared.messages.desired import AdapterRecord
from shared.messages.generation import ChatMessage


class CasePrompt(msgspec.Struct, frozen=True, kw_only=True):
    """One case of an evaluation set as a replica sees it: what to answer, not what is right."""

    case: int
    messages: tuple[ChatMessage, ...]
    max_tokens: int = 128


class Complete(msgspec.Struct, frozen=True, kw_only=True):
    """Answer each prompt greedily with this adapter, which no alias need name; None is the base model itself."""

    base_model_hash: str
    record: AdapterRecord | None
    prompts: tuple[CasePrompt, ...]


class CaseOutput(msgspec.Struct, frozen=True, kw_only=True):
    """`error` is one sentence if this prompt could not be answered; `text` is then what came before."""

    case: int
    text: str
    tokens: int
    finish: str
    error: str = ""


class Completed(msgspec.Struct, frozen=True, kw_only=True):
    replica_id: str
    outputs: tuple[CaseOutput, ...]
