"""One request inside an engine, from its submission to its last token."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

from services.replica_worker.engine.batch import Piece, Progress
from services.replica_worker.engine.blocks import BLOCK_TOKENS, PrefixKey, extend_keys
from services.replica_worker.engine.port import EngineRequest, Probe, StepToken

WAITING = -1
BRIEF_TOKENS = 4
"""A probe of at most so many tokens goes beside whatever runs, and waits for no row."""


class Sequence:
    """Mutable, owned by whoever steps. `row` is its place in the batch, WAITING without one.

    `digest` is that of the adapter in its slot ("" on the base). Position p of its keys and values is in
    block `blocks[p // BLOCK_TOKENS]`. A `private` one neither finds what others computed nor lets them find
    what it does. `probe_top` > 0 asks for the next-token distribution instead of tokens; it ends with its
    prompt, and is private, because it asks what the weights do now; a short one is `brief`.
    """

    def __init__(self, request: EngineRequest, digest: str = "", probe_top: int = 0) -> None:
        self.request = request
        self.digest = digest
        self.probe_top = probe_top
        self.private = probe_top > 0
        self.brief = probe_top > 0 and len(request.prompt_token_ids) <= BRIEF_TOKENS
        self.token_ids = list(request.prompt_token_ids)
        self.row = WAITING
        self.arrival = 0
        self.cached_tokens = 0
        self.produced_tokens = 0
        self.served_step = -1
        self.blocks: list[int] = []
        self.published_blocks = 0
        self.found_tokens = 0
        self._reached_tokens = 0
        self._keys: list[PrefixKey] = []

    @property
    def next_position(self) -> int:
        return self.request.first_position + self.produced_tokens

    def progress(self) -> Progress:
        return Progress(self.row, len(self.token_ids), self.cached_tokens, self.served_step, self.brief)

    def prefix_keys(self) -> list[PrefixKey]:
        """One for each of its full blocks of tokens."""
        extend_keys(self._keys, self.digest, self.request.cache_salt, self.token_ids)
        return self._keys

    def find(self, blocks: SequenceOf[int]) -> None:
        """Its next tokens are cached in these published blocks. What it had computed itself before it lost
        its place is not counted as found."""
        self.blocks += blocks
        self.published_blocks = len(self.blocks)
        before = max(self.cached_tokens, self._reached_tokens)
        self.cached_tokens = len(self.blocks) * BLOCK_TOKENS
        self.found_tokens += max(0, self.cached_tokens - before)
        self._reached_tokens = max(before, self.cached_tokens)

    def advance(self, piece: Piece, step: int) -> None:
        self.cached_tokens = piece.stop
        self._reached_tokens = max(self._reached_tokens, piece.stop)
        self.served_step = step

    def append(self, token_id: int) -> None:
        self.token_ids.append(token_id)
        self.produced_tokens += 1

    def lose_cache(self) -> None:
        """It has no blocks any more; what it produced stays and is computed again like a prompt."""
        self.blocks = []
        self.cached_tokens = self.published_blocks = 0
        self.served_step = -1


Outcome = tuple[Sequence, StepToken | Probe]
"""What one step means for one sequence."""


def probe_request(prompt_token_ids: SequenceOf[int], slot: int) -> EngineRequest:
    """What a probe is to the schedule: a prompt that produces nothing after its first distribution."""
    return EngineRequest(
        request_id="probe",
        slot=slot,
        prompt_token_ids=prompt_token_ids,
        max_tokens=1,
        temperature=0.0,
        top_p=1.0,
        seed=0,
    )
