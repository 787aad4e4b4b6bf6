"""Which questions the engine benchmark puts to which engine: pure, one list that every round goes through.

What is compared stands side by side in the list, and every second round goes through it backwards: whatever drifts on
the machine drifts for all alike.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from loadtest.engine_cases import ColdStart, Decode, FirstToken, Gaps, Loading, Loads, Question, Thrash, Tier

OURS, TRANSFORMERS, PEFT, VLLM, VLLM_LORA = "ours", "transformers", "peft", "vllm", "vllm_lora"
REPLICA = "replica"
FLOAT32 = "float32"

RANK, RANKS = 16, (8, 64)
"""The rank of the standard conditions, and the others that are measured."""
MANY_SLOTS, FEW_SLOTS = 32, 8
"""Slots that hold adapters, in engines that decode for up to 32 and up to 8 of them."""
ROWS, DISTINCT = (1, 8, 32), (1, 4, 8, 32)
LONG_CONTEXT, LONG_CONTEXT_TOKENS = "context512", 513
"""One token more than whole KV blocks: only that one is computed again when the prompt comes back."""
PREFILL_TOKENS = 512
COLD_PROMPT_TOKENS = 100
"""Within one step's prefill, the probe included: a prompt that just fills a step would need a second one for it."""
TIERS: tuple[Tier, ...] = ("store_to_disk", "disk_to_ram", "ram_to_slot")
_STEPS = {1: 32, 8: 24, 32: 16}


THRASH = Thrash(rows=32, requests=48, requests_per_s=2.0, max_tokens=16)
"""Well within what one thread can do on SmolLM2, so that queues come from slots and not from a lack of speed."""


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """One question to one engine; what comes of it is kept under `key`."""

    key: str
    peer: str
    question: Question


def cell(rows: int, distinct: int, condition: str = "") -> str:
    """The name of one cell of the table, such as `b32.base`, `b32.d8` or `b32.d8.rank64`; `condition` says what
    differs from the standard ones."""
    return f"b{rows}.{f'd{distinct}' if distinct else 'base'}{condition and '.' + condition}"


def other_threads(threads: int) -> int:
    return 1 if threads > 1 else 2


def one_round(threads: int) -> tuple[Visit, ...]:
    """Everything once."""
    threaded = f"threads{other_threads(threads)}"
    mixed = Decode(rows=32, distinct=8, steps=_STEPS[32])
    long = Decode(rows=8, distinct=8, prompt_tokens=LONG_CONTEXT_TOKENS, steps=16)
    return (
        *_standard(),
        *(visit for rank in RANKS for rows in ROWS for visit in _row(f"rank{rank}", rows)),
        *_decodes(FLOAT32, FLOAT32, mixed),
        *_decodes(threaded, threaded, mixed),
        *_decodes(OURS, LONG_CONTEXT, long),
        *_one_request(),
        *_loads(),
    )


def _standard() -> Iterator[Visit]:
    """Our table at the standard conditions, with each peer's figure beside ours."""
    beside = {
        (8, 0): (TRANSFORMERS, TRANSFORMERS),
        (8, 4): (PEFT, PEFT),
        (32, 0): (VLLM, VLLM),
        (32, 8): (VLLM_LORA, VLLM),
    }
    for rows in ROWS:
        for distinct in (0, *DISTINCT):
            if distinct <= rows:
                case = Decode(rows=rows, distinct=distinct, steps=_STEPS[rows])
                yield Visit(key=cell(rows, distinct), peer=OURS, question=case)
                if (rows, distinct) in beside:
                    peer, condition = beside[rows, distinct]
                    yield Visit(key=cell(rows, distinct, condition), peer=peer, question=case)


def _row(peer: str, rows: int) -> Iterator[Visit]:
    for distinct in (0, *DISTINCT):
        if distinct <= rows:
            case = Decode(rows=rows, distinct=distinct, steps=_STEPS[rows])
            yield Visit(key=cell(rows, distinct, peer), peer=peer, question=case)


def _decodes(peer: str, condition: str, case: Decode) -> Iterator[Visit]:
    """The case and its base."""
    for distinct in (0, case.distinct):
        question = msgspec.structs.replace(case, distinct=distinct)
        yield Visit(key=cell(case.rows, distinct, condition), peer=peer, question=question)


def _one_request() -> Iterator[Visit]:
    for key, adapted in (("prefill.base", False), ("prefill.d1", True)):
        yield Visit(key=key, peer=OURS, question=FirstToken(prompt_tokens=PREFILL_TOKENS, adapted=adapted))
    for _ in range(8):
        for key, probe in (("cold.alone", False), ("cold.probed", True)):
            case = ColdStart(prompt_tokens=COLD_PROMPT_TOKENS, probe=probe)
            yield Visit(key=key, peer=OURS, question=case)


def _loads() -> Iterator[Visit]:
    kinds: tuple[Loading, ...] = ("none", "steady", "back_to_back")
    for loading in kinds:
        yield Visit(key=f"gaps.{loading}", peer=OURS, question=Gaps(rows=8, steps=100, loading=loading))
    for tier in TIERS:
        yield Visit(key=f"loads.{tier}", peer=OURS, question=Loads(tier=tier, pairs=6))
