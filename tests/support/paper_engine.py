"""An engine on paper: the real schedule over a cache that remembers who wrote what, so that every token shows
whether it was computed from its own sequence, and from nothing else."""

from __future__ import annotations

import zlib

import msgspec

from services.replica_worker.engine.batch import Piece
from services.replica_worker.engine.blocks import BLOCK_TOKENS
from services.replica_worker.engine.port import EngineInfo, EngineRequest, StepToken
from services.replica_worker.engine.schedule import Schedule, SchedulePolicy
from services.replica_worker.engine.sequence import Sequence
from tests.support.token_log import greedy

INFO = EngineInfo(
    name="paper",
    build="paper",
    dtype="none",
    base_model_hash="b",
    slots=4,
    rank_limit=8,
    max_rows=4,
    max_context_tokens=200,
    vocabulary_size=1000,
    eos_token_ids=(2,),
)
CHUNK_TOKENS = 32
STEP_LIMIT = 20_000


class Written(msgspec.Struct, frozen=True):
    """What stands in one place of the cache: like a real key, its value depends on all that its writer read."""

    value: int
    digest: str
    salt: str


class PaperEngine:
    """`faults` collects what a step read that was not its sequence's own; `found_tokens` what requests found."""

    def __init__(self, blocks: int, prefix_cache: bool = True, info: EngineInfo = INFO) -> None:
        policy = SchedulePolicy(prefill_chunk_tokens=CHUNK_TOKENS, blocks=blocks, prefix_cache=prefix_cache)
        self.schedule = Schedule(info, policy)
        self.answers: dict[str, list[int]] = {}
        self.ended: set[str] = set()
        self.faults: list[str] = []
        self.found_tokens: dict[str, int] = {}
        self._cache: dict[tuple[int, int], Written] = {}

    def submit(self, request: EngineRequest, digest: str = "") -> Sequence:
        sequence = Sequence(request, digest)
        self.answers[request.request_id] = []
        self.schedule.submit(sequence)
        return sequence

    def step(self) -> None:
        pieces = self.schedule.begin_step()
        summaries = {piece.row: self._compute(piece) for piece in pieces}
        rows = [(sequence, sequence.row) for sequence in self.schedule.advance(pieces)]
        for sequence, row in rows:
            self._note(self.schedule.accept(sequence, _token_of(sequence, summaries[row])))

    def run(self) -> None:
        """Until everything has ended; raises AssertionError if it never does."""
        for _ in range(STEP_LIMIT):
            if not self.schedule.busy:
                return
            self.step()
        raise AssertionError("the schedule goes round in circles")

    def _note(self, token: StepToken) -> None:
        self.answers[token.request_id].append(token.token_id)
        self.found_tokens.setdefault(token.request_id, token.cached_tokens)
        if token.finish:
            self.ended.add(token.request_id)

    def _compute(self, piece: Piece) -> int:
        """Write the piece's places, each from everything before it; returns what all places sum up to."""
        sequence = self.schedule.running[piece.row]
        weights = zlib.crc32(sequence.digest.encode())
        summary = 0
        for position in range(piece.stop):
            place = sequence.blocks[position // BLOCK_TOKENS], position % BLOCK_TOKENS
            if position >= piece.start:
                value = hash((summary, weights, sequence.token_ids[position]))
                self._cache[place] = Written(value, sequence.digest, sequence.request.cache_salt)
            summary = hash((summary, self._read(place, sequence)))
        return summary

    def _read(self, place: tuple[int, int], sequence: Sequence) -> int:
        written = self._cache[place]
        if (written.digest, written.salt) != (sequence.digest, sequence.request.cache_salt):
            self.faults.append(f"{sequence.request.request_id} read a block of {written.digest!r}, {written.salt!r}")
        return written.value


def _token_of(sequence: Sequence, summary: int) -> int:
    return 3 + hash((summary, sequence.request.seed, sequence.next_position)) % 900


def alone(request: EngineRequest, digest: str = "") -> list[int]:
    """What a request answers by itself, in a cache in which there is room for everything and nothing to find."""
    engine = PaperEngine(blocks=100, prefix_cache=False)
    engine.submit(request, digest)
    engine.run()
    return engine.answers[request.request_id]


def asking(name: str, length: int, max_tokens: int, family: int = 0, salt: str = "") -> EngineRequest:
    """Requests of one family begin with the same tokens, those of different families never."""
    prompt = tuple(3 + family * 100 + at % 90 for at in range(length))
    return msgspec.structs.replace(greedy(name, prompt, max_tokens=max_tokens), cache_salt=salt, seed=family)
