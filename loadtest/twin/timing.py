"""How long things take: a replica's steps, the way of an adapter through the tiers, and what stands between."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec


class StepTable(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="linear"):
    """A step with `rows` rows and `prefill` prompt tokens takes base + rows × row + adapters × adapter + prefill ÷
    rate, and `pair_s` for each pair of such a token and one before it, since it attends to all of them. `spread` is the
    standard deviation of a step as a share of its mean, and of the steps that follow it as well: what makes one slow
    does so for a while. Defaults are fleet A of the spec."""

    base_s: float = 0.050
    row_s: float = 0.0
    adapter_s: float = 0.0
    prefill_tokens_per_s: float = 8_000.0
    pair_s: float = 0.0
    spread: float = 0.0

    def step_s(self, rows: int, prefill_tokens: int, adapters: int) -> float:
        own_s = self.base_s + rows * self.row_s + adapters * self.adapter_s
        return own_s + prefill_tokens / self.prefill_tokens_per_s


class MeasuredTable(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="measured"):
    """As measured: `mean_s[i][j]` is a step with `rows[i]` rows and `prefill_tokens[j]` prompt tokens; linear in
    between, and beyond the last by the slope of the last two. Both axes rise. `adapter_s` is added for each distinct
    adapter, unless the measurement had as many of them as rows (then 0), and `pair_s` as of a StepTable. Raises
    ValueError for a ragged table."""

    rows: tuple[int, ...]
    prefill_tokens: tuple[int, ...]
    mean_s: tuple[tuple[float, ...], ...]
    adapter_s: float = 0.0
    pair_s: float = 0.0
    spread: float = 0.0

    def __post_init__(self) -> None:
        axes = (self.rows, self.prefill_tokens)
        if any(len(axis) < 2 or list(axis) != sorted(set(axis)) for axis in axes):
            raise ValueError("a timing table needs at least two rising points on each axis")
        if len(self.mean_s) != len(self.rows) or any(len(line) != len(self.prefill_tokens) for line in self.mean_s):
            raise ValueError(f"a timing table of {len(self.rows)} × {len(self.prefill_tokens)} points has others")

    def step_s(self, rows: int, prefill_tokens: int, adapters: int) -> float:
        at = _segment(self.rows, rows)
        below, above = (self._along(line, prefill_tokens) for line in self.mean_s[at : at + 2])
        between = (rows - self.rows[at]) / (self.rows[at + 1] - self.rows[at])
        return max(0.0, below + between * (above - below)) + adapters * self.adapter_s

    def _along(self, line: Sequence[float], prefill_tokens: int) -> float:
        at = _segment(self.prefill_tokens, prefill_tokens)
        first, last = self.prefill_tokens[at], self.prefill_tokens[at + 1]
        return line[at] + (prefill_tokens - first) / (last - first) * (line[at + 1] - line[at])


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Every hop of an adapter is one serial link for each replica: store → disk → RAM → slot. `gateway_s` is what a
    gateway needs for a request before it is sent, `bus_s` a message's way, `worker_s` from a request's receipt to its
    place in line (its tokens are counted there), and `relay_s` from a token's step to the client, less the bus.
    `jitter_s` are equally likely deviations from what a request needs on its way to a replica; none: no deviation."""

    steps: StepTable | MeasuredTable = StepTable()
    store_bytes_per_s: float = 200e6
    store_latency_s: float = 0.020
    disk_bytes_per_s: float = 2e9
    disk_latency_s: float = 0.0
    slot_bytes_per_s: float = 10e9
    slot_latency_s: float = 0.0
    gateway_s: float = 0.0005
    bus_s: float = 0.0003
    worker_s: float = 0.0007
    relay_s: float = 0.0003
    jitter_s: tuple[float, ...] = ()
    in_line: bool = False
    """Requests that come together hold each other up on their way."""
    line_s: float | None = None
    """So much of a request's way, and no more than all of it, is work by turns: who comes together gets on together,
    and all of them later. It is all that a request waits for others on its way. None: `gateway_s` and `worker_s` are
    work, of one request after the other."""
    beside_s: float = 0.0
    """A request's way is so much longer if any replica computes as it begins, or with `line_s` as its turns are over,
    since that takes a processor."""
    crowd_share: float = 0.0
    """By this share of itself a step that computes of prompts is longer for each other replica that computes."""


def pairs(start: int, stop: int) -> float:
    """Of the tokens from position `start` up to `stop` with those before them."""
    return (stop * stop - start * start) / 2


def _segment(axis: Sequence[int], value: int) -> int:
    return min(max(bisect_right(axis, value) - 1, 0), len(axis) - 2)
