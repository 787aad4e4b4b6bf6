"""What the worker asks of an engine, whichever engine it is.

The worker owns text (tokenizer, chat template, stop strings), tiers and slots; an engine owns the
model, the KV cache and the batch. They exchange token ids and slot numbers, never strings or paths
from a request; a JSON schema is understood first, and then named by what that gave. Implementations:
`torch` (reference), `vllm` (production), `timed` (no model). Every one of them passes
`tests/integration/engine_suite.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from services.replica_worker.engine.figures import EngineLoad
from services.replica_worker.engine.shaping import Grammar, Logprobs, Shaping

BASE_SLOT = -1
"""The slot number of a request for the base model: no adapter is applied."""


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What one started engine can do. All limits are hard."""

    name: str
    build: str
    """Code and kind of hardware. With the same build and dtype an adapter lies in a slot byte for byte the same,
    and does the same there."""
    dtype: str
    base_model_hash: str
    slots: int
    rank_limit: int
    max_rows: int
    max_context_tokens: int
    vocabulary_size: int
    eos_token_ids: tuple[int, ...]
    kv_tokens: int = 0
    """How many tokens of context the KV cache holds, over all sequences; 0: as many as rows can need."""
    hashes_beside_steps: bool = False
    """A slot is hashed at no cost for the steps that run: `fingerprint` may be asked for at every load."""
    device: str = "cpu"
    """The kind of accelerator that it computes on, as its maker calls it."""
    has_model: bool = True
    """False: what it produces is made up, and says nothing about a base model's weights."""


class AdapterSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How the tensors of one adapter are to be applied; fixed at registration."""

    adapter_id: str
    digest: str
    base_model_hash: str
    rank: int
    alpha: float
    target_modules: tuple[str, ...]
    use_rslora: bool = False
    rank_pattern: Mapping[str, int] = {}
    alpha_pattern: Mapping[str, float] = {}


class HostAdapter(Protocol):
    """One adapter in host RAM, parsed and checked by the engine that will apply it."""

    @property
    def spec(self) -> AdapterSpec: ...
    @property
    def size_bytes(self) -> int: ...


class EngineRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence to decode.

    `prompt_token_ids` may end with tokens that another replica already produced; `first_position`
    is then how many of them there are, so that sampling, keyed by (seed, position), continues.
    `max_tokens` counts the tokens still to be produced here.
    """

    request_id: str
    slot: int
    prompt_token_ids: Sequence[int]
    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    first_position: int = 0
    ignore_eos: bool = False
    cache_salt: str = ""
    """Prefixes are only ever shared between requests with the same salt and the same adapter digest."""
    shaping: Shaping | None = None
    """None: the distribution is taken as it is, and nobody wants to hear of it."""

    @property
    def produced_token_ids(self) -> Sequence[int]:
        """By other replicas; they end the prompt."""
        return self.prompt_token_ids[len(self.prompt_token_ids) - self.first_position :]


class StepToken(msgspec.Struct, frozen=True):
    """One token of one request. `position` counts produced tokens from 0 (from `first_position` on a
    continuation). `finish` is "stop" (an eos id; that id is `token_id`), "length", or None. With
    `error` set the request has ended, `token_id` is -1 and the sentence says why. The first token of a
    request carries in `cached_tokens` how many tokens of its prompt were found in the prefix cache."""

    request_id: str
    token_id: int
    position: int
    finish: str | None = None
    error: str | None = None
    cached_tokens: int = 0
    logprobs: Logprobs | None = None
    """Of every token, if the request wants to hear of them."""


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """The next-token distribution after a prompt: its best `len(token_ids)` tokens, best first."""

    finite: bool
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


OnStep = Callable[[Sequence[StepToken]], None]


class AdapterUnusable(Exception):
    """The file is not an adapter that this engine can apply; the message says why in one sentence."""


class EngineFailed(Exception):
    """The engine as a whole is broken; every request in it has ended and it must be rebuilt."""


class Engine(Protocol):
    async def start(self, on_step: OnStep) -> EngineInfo:
        """Load the base model, warm up, begin stepping.

        `on_step` is called on the event loop once per engine step with every token of that step.
        Raises EngineFailed with the reason; nothing is left running then.
        """

    async def close(self) -> None:
        """End every request without a final StepToken and free the model. Idempotent."""

    async def read(self, path: Path, spec: AdapterSpec) -> HostAdapter:
        """Parse a safetensors file off the event loop into this engine's host form.

        Raises AdapterUnusable (shape, rank, name, non-finite, wrong base, not safetensors).
        """

    async def load(self, slot: int, adapter: HostAdapter) -> None:
        """Copy into a slot while the batch keeps stepping; applied from the next step on.

        No request may be running on `slot`: raises ValueError then, or if there is no such slot, and
        nothing has changed. Raises AdapterUnusable; the slot is then empty.
        """

    async def clear(self, slot: int) -> None:
        """Make the slot's weights zero; nothing that was computed with them is found by a later request.

        Idempotent. Raises ValueError as `load` does.
        """

    async def understand(self, json_schema: str) -> Grammar:
        """What a request has to name for its answer to follow the schema. Steps go on meanwhile.

        Raises GrammarUnusable for a schema that this engine cannot follow, or not cheaply enough.
        """

    def submit(self, request: EngineRequest) -> None:
        """Queue a request; its tokens arrive through `on_step`. Never blocks, never raises for load.

        What cannot run at all (an empty slot, no prompt, a prompt of `max_context_tokens` or more) ends
        with an error StepToken. Raises ValueError for the id of a request that is still live, and
        EngineFailed once the engine is broken.
        """

    def abort(self, request_id: str) -> None:
        """End a request without a further StepToken. Unknown ids are ignored."""

    def probe(self, prompt_token_ids: Sequence[int], slot: int, top: int = 20) -> Awaitable[Probe]:
        """Next-token distribution of a prompt with the slot's adapter (or BASE_SLOT).

        Joins the batch like any request, and at the call: what is submitted right after it is computed in the
        same step. Raises ValueError for what `submit` would end with an error.
        """

    async def fingerprint(self, slot: int) -> str:
        """SHA-256 over the slot's tensors as they now stand in the engine (BASE_SLOT: over nothing)."""

    async def expected_fingerprint(self, adapter: HostAdapter) -> str:
        """The `fingerprint` of any slot that holds exactly this adapter; "" if this engine cannot tell."""

    def load_figures(self) -> EngineLoad:
        """Rows and promised tokens right now; cheap, callable every step.

        Raises EngineFailed once the engine is broken: this is where a worker notices.
        """
