"""What the engine benchmark asks of an engine, ours or another's: the same prompts, rows and steps for all.

Questions travel as JSON lines to a process that holds one engine, answers come back as numbers. Needs nothing but
msgspec, because other engines live in environments of their own.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Tier = Literal["store_to_disk", "disk_to_ram", "ram_to_slot"]

FIRST_TOKEN_ID, TOKEN_IDS = 100, 1000
"""Prompts draw on these ids, which every vocabulary has."""


class Decode(msgspec.Struct, frozen=True, kw_only=True, tag="decode"):
    """The times (s) of `steps` steps in which all rows decode, one token a row and step. The rows take
    `distinct` adapters in turn; 0: all are on the base model."""

    rows: int
    distinct: int
    prompt_tokens: int = 33
    steps: int = 16


class FirstToken(msgspec.Struct, frozen=True, kw_only=True, tag="first_token"):
    """The time (s) from handing over one new prompt to its first token, on the base model or one adapter."""

    prompt_tokens: int
    adapted: bool = False


Loading = Literal["none", "steady", "back_to_back"]
LOADS_PER_S = 10
"""How often an adapter sets out from disk to a slot while loads are steady."""


class Gaps(msgspec.Struct, frozen=True, kw_only=True, tag="gaps"):
    """The times (s) between steps of `rows` streams of as many adapters while others come from disk into slots, one
    after the other."""

    rows: int
    steps: int
    loading: Loading


class Loads(msgspec.Struct, frozen=True, kw_only=True, tag="loads"):
    """Pairs of times (s), one after the other: a load of one adapter into a tier, and a plain copy of as many bytes
    between the same media."""

    tier: Tier
    pairs: int


class ColdStart(msgspec.Struct, frozen=True, kw_only=True, tag="cold_start"):
    """The time (s) to the first token of a request whose adapter is on disk; with `probe`, the probe of the proof of
    effect enters the batch with it, and the token waits for what it finds."""

    prompt_tokens: int
    probe: bool


class Memory(msgspec.Struct, frozen=True, tag="memory"):
    """Bytes that the process holds, and bytes of one adapter in RAM."""


class Thrash(msgspec.Struct, frozen=True, kw_only=True, tag="thrash"):
    """How many times as long the median first token takes with twice as many adapters in use as slots as with all in
    slots; then both medians (ms). Requests come at random moments at `requests_per_s`, whatever became of others."""

    rows: int
    requests: int
    requests_per_s: float
    max_tokens: int


Question = Decode | FirstToken | Gaps | Loads | ColdStart | Memory | Thrash
Answer = list[float]


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The engine could not answer; `reason` is one sentence."""

    reason: str


class Measured(msgspec.Struct, frozen=True, tag="measured"):
    values: Answer


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The engine has started; `build` names it and its version."""

    build: str


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine is started with. `adapters` are PEFT folders of rank `rank`; slot s holds adapter
    s modulo their number, so that many slots of full size need few files."""

    model: str
    adapters: tuple[str, ...]
    rank: int = 16
    slots: int = 32
    threads: int = 1
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    max_context_tokens: int = 1024


def prompt_of(row: int, tokens: int) -> list[int]:
    """A prompt of its own for every row."""
    return [FIRST_TOKEN_ID + (101 * row + 7 * at) % TOKEN_IDS for at in range(tokens)]


def adapter_of(row: int, distinct: int) -> int | None:
    """Which adapter a row takes; None: the base model."""
    return row % distinct if distinct else None
