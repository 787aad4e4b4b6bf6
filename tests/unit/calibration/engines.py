"""A replica whose times are known, as its clients see it: one step after the other, and what they add up to."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from loadtest.calibration.seen import Seen
from loadtest.twin.timing import pairs

CHUNK_TOKENS = 128
LENGTHS = (40, 120, 200, 400, 600, 800)


@dataclass(frozen=True, kw_only=True)
class KnownTimes:
    """A step takes base_s + row_s × rows; `prompt_s` and `prompt_token_s` come on top, and `prompt_pair_s` for each
    pair of a prompt's token and one before it. Before it there is `way_s`, after it `relay_s`; each request's way is
    longer by a draw from `jitter_s`, and by `beside_s` if steps are taken as it is sent."""

    base_s: float = 0.010
    row_s: float = 0.001
    prompt_s: float = 0.002
    prompt_token_s: float = 0.00005
    prompt_pair_s: float = 0.0
    way_s: float = 0.004
    relay_s: float = 0.001
    jitter_s: tuple[float, ...] = (0.0,)
    beside_s: float = 0.0

    def step_s(self, rows: int, prompts: list[int]) -> float:
        return self.base_s + self.row_s * rows + sum(self.prompt_s + self.prompt_token_s * size for size in prompts)


@dataclass
class _Row:
    number: int
    sent_s: float
    ready_s: float
    prompt_left: int
    prompt_tokens: int
    tokens: int
    produced: int = 0
    first_s: float | None = None
    times_s: list[float] = field(default_factory=list)


def seen_of(times: KnownTimes, requests: int, rate_per_s: float, seed: int = 1) -> list[Seen]:
    """Poisson arrivals on one replica, prompts of 2 to 300 tokens in pieces of at most CHUNK_TOKENS."""
    draw, at_s, waiting = random.Random(seed), 0.0, []
    for number in range(requests):
        at_s += draw.expovariate(rate_per_s)
        prompt, ready_s = draw.randint(2, 300), at_s + times.way_s + draw.choice(times.jitter_s)
        waiting.append(_Row(number, at_s, ready_s, prompt, prompt, draw.randint(6, 60)))
    waiting.sort(key=lambda row: row.ready_s)
    now_s, running, over, sent = 0.0, [], [], deque(waiting)
    while waiting or running:
        while sent and sent[0].sent_s <= now_s:
            sent.popleft().ready_s += times.beside_s if running else 0.0
        if not running:
            now_s = max(now_s, waiting[0].ready_s)
        while waiting and waiting[0].ready_s <= now_s:
            running.append(waiting.pop(0))
        pieces, left = [], CHUNK_TOKENS
        for row in running:
            take = min(row.prompt_left, left)
            if take:
                pieces.append((row, take))
                left -= take
        now_s += times.step_s(len(running), [take for _, take in pieces])
        for row, take in pieces:
            done = row.prompt_tokens - row.prompt_left
            now_s += times.prompt_pair_s * pairs(done, done + take)
        computing = [row for row in running if row.prompt_left]
        for row, take in pieces:
            row.prompt_left -= take
        for row in [row for row in running if row not in computing or not row.prompt_left]:
            row.produced += 1
            row.first_s = now_s if row.first_s is None else row.first_s
            if row.produced == row.tokens:
                running.remove(row)
                over.append(_seen(row, times, now_s))
    return sorted(over, key=lambda seen: seen.sent_s)


def lone_of(times: KnownTimes, sizes: tuple[int, ...] = LENGTHS, each: int = 12, seed: int = 1) -> list[Seen]:
    """Prompts of these sizes, so many of each, that had the replica for themselves; answers of 8 tokens."""
    draw, found = random.Random(seed), []
    for number in range(each):
        for size in sizes:
            steps_s = sum(times.step_s(1, [min(CHUNK_TOKENS, size - at)]) for at in range(0, size, CHUNK_TOKENS))
            late_s = times.way_s + draw.choice(times.jitter_s) + times.relay_s
            first_s = steps_s + times.prompt_pair_s * pairs(0, size) + late_s
            found.append(Seen(
                request_id=f"lone-{number}-{size}", adapter=0, planned_s=0.0, sent_s=0.0, first_s=first_s,
                ended_s=first_s + 7 * times.step_s(1, []), outcome="ok", tier="gpu", replica="replica-0",
                prompt_tokens=size, tokens=8, attempts=1,
            ))  # fmt: skip
    return found


def _seen(row: _Row, times: KnownTimes, now_s: float) -> Seen:
    assert row.first_s is not None, "it has ended"
    return Seen(
        request_id=f"r{row.number}", adapter=0, planned_s=row.sent_s, sent_s=row.sent_s,
        first_s=row.first_s + times.relay_s, ended_s=now_s + times.relay_s, outcome="ok", tier="gpu",
        replica="replica-0", prompt_tokens=row.prompt_tokens, tokens=row.tokens, attempts=1,
    )  # fmt: skip
