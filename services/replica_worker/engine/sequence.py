"""One request inside an engine, from its submission to its last token."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

from services.replica_worker.engine.batch import Piece, Progress
from services.replica_worker.engine.port import EngineRequest, Probe, StepToken

WAITING = -1


class Sequence:
    """Mutable, owned by whoever steps. `row` is its place in the KV cache, WAITING without one.

    `probe_top` > 0 asks for the next-token distribution instead of tokens; it ends with its prompt.
    """

    def __init__(self, request: EngineRequest, probe_top: int = 0) -> None:
        self.request = request
        self.probe_top = probe_top
        self.token_ids = list(request.prompt_token_ids)
        self.row = WAITING
        self.cached_tokens = 0
        self.produced_tokens = 0
        self.served_step = -1

    @property
    def next_position(self) -> int:
        return self.request.first_position + self.produced_tokens

    def progress(self) -> Progress:
        return Progress(self.row, len(self.token_ids), self.cached_tokens, self.served_step)

    def advance(self, piece: Piece, step: int) -> None:
        self.cached_tokens = piece.stop
        self.served_step = step

    def append(self, token_id: int) -> None:
        self.token_ids.append(token_id)
        self.produced_tokens += 1


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
