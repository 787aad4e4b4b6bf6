"""An engine in virtual time whose steps take longer with every row, and the replica's own decision at its door."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import msgspec

from services.replica_worker.core.admission import Door, admit, given_up
from services.replica_worker.core.capacity import Capacity
from services.replica_worker.core.margin import Margin
from services.replica_worker.core.row_ends import Row
from services.replica_worker.core.row_pace import RowPace
from services.replica_worker.core.turn import Line, turn_of
from shared.messages.generation import GenerateRequest, Sampling

QUESTION = GenerateRequest(
    request_id="", gateway_id="g", tenant_id="acme", pool_id="p", base_model_hash="b", messages=(),
    sampling=Sampling(seed=1), objective_s=1.0,
)  # fmt: skip
DOOR = Door(
    pool_id="p", base_model_hash="b", not_ready="", draining=False, waiting=0, queue_limit=256, tokens_in_flight=0,
    tokens_per_s=0.0,
)  # fmt: skip


@dataclass(eq=False)
class Asked:
    """`ttft_s` None: it was refused."""

    id: str
    arrived_s: float
    tokens: int
    turn_s: float | None = None
    ahead: int | None = None
    produced: int = 0
    ttft_s: float | None = None


@dataclass
class SlowRows:
    """A step takes `least_s`, `row_s` more for each row, and `prompt_s` for each of the two prompts that it computes
    at most. `sheds` False: all are let in, and wait."""

    least_s: float = 0.03
    row_s: float = 0.003
    prompt_s: float = 0.03
    max_rows: int = 32
    sheds: bool = True
    capacity: Capacity = field(default_factory=Capacity)
    pace: RowPace = field(default_factory=RowPace)
    margin: Margin = field(default_factory=Margin)
    _handed: dict[Asked, None] = field(default_factory=dict)
    _waiting: deque[Asked] = field(default_factory=deque)
    _now_s: float = 0.0

    def run(self, arrivals: list[Asked]) -> list[Asked]:
        """All of them, once the last one's answer has ended."""
        coming = deque(arrivals)
        while coming or self._handed:
            if not self._handed:
                self._now_s = max(self._now_s, coming[0].arrived_s)
            self._let_in(coming, self._now_s)
            if self._handed:
                self._step(coming)
        return arrivals

    def _let_in(self, coming: deque[Asked], until_s: float) -> None:
        while coming and coming[0].arrived_s <= until_s:
            one = coming.popleft()
            if not self.sheds or self._refusal(one) is None:
                self._waiting.append(one)
                self._hand_on(one.arrived_s)

    def _refusal(self, one: Asked) -> object:
        free_rows = self.max_rows - len(self._handed)
        prompts = sum(each.ttft_s is None for each in self._handed)
        line = Line(
            before=len(self._waiting), free_rows=free_rows, max_rows=self.max_rows, prompts=prompts,
            handed=len(self._handed),
            rows=() if free_rows > 0 else [Row(each.produced, 200 - each.produced) for each in self._handed],
        )  # fmt: skip
        found = turn_of(line, QUESTION.objective_s, self.pace, self.capacity, self.margin)
        return admit(QUESTION, msgspec.structs.replace(DOOR, forecast=found, waiting=len(self._waiting)))

    def _hand_on(self, now_s: float) -> None:
        while self._waiting and len(self._handed) < self.max_rows:
            one = self._waiting.popleft()
            one.turn_s, one.ahead = now_s, sum(each.ttft_s is None for each in self._handed)
            self._handed[one] = None

    def _step(self, coming: deque[Asked]) -> None:
        decoding = [each for each in self._handed if each.ttft_s is not None]
        prompts = [each for each in self._handed if each.ttft_s is None][:2]
        self._now_s += self.least_s + self.row_s * len(decoding) + self.prompt_s * len(prompts)
        self._let_in(coming, self._now_s)
        for one in decoding + prompts:
            one.produced += 1
        for one in prompts:
            one.ttft_s = self._now_s - one.arrived_s
            self.pace.began(self._now_s - (one.turn_s or 0.0), one.ahead)
            self.margin.began(one.ttft_s, QUESTION.objective_s, self._now_s)
        over = [one for one in decoding + prompts if one.produced >= one.tokens]
        for one in over:
            del self._handed[one]
            self.pace.ended(one.produced)
        self._hand_on(self._now_s)
        if self.sheds:
            late = [one for one in self._waiting if given_up(1.0, self._now_s - one.arrived_s, 0, 1.0)]
            self._waiting = deque(one for one in self._waiting if one not in late)
        self.capacity.step(
            {one.id: 1 for one in decoding + prompts}, frozenset(one.id for one in over), len(self._handed), self._now_s
        )


def poisson(rate_per_s: float, for_s: float, *, tokens: int = 32, uneven: bool = False, seed: int = 1) -> list[Asked]:
    """Answers of `tokens` tokens; uneven: of as many on average, exponentially distributed."""
    draw, at_s, found = random.Random(seed), 0.0, []
    while (at_s := at_s + draw.expovariate(rate_per_s)) < for_s:
        length = max(1, min(200, round(draw.expovariate(1.0 / tokens)))) if uneven else tokens
        found.append(Asked(f"r{len(found)}", at_s, length))
    return found
