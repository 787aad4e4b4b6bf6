"""How soon a row becomes free, by what rows did lately: whoever would wait too long for one is told at the door."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from .prompt_line import PromptLine
from .prompt_pace import PromptWait
from .row_ends import Row, RowEnds

_KEPT = 0.97
"""How much of what is known is still believed after one more answer: some thirty of them count."""
_LEAST_WEIGHT = 5.0
"""Before so many answers nothing is said."""
_ONE_IN_TWENTY = 1.645
"""Standard deviations."""


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """Of a request that came now and has to wait: its turn comes after `mean_s`, as things go, and for all but one in
    twenty such requests within `late_s`; its first token `first_token_s` later. One such turn comes every `row_s`."""

    mean_s: float
    late_s: float
    first_token_s: float
    row_s: float
    awaits: str = "row"
    """Or "prompts": what it waits for longer."""

    @property
    def in_time_s(self) -> float:
        return self.late_s + self.first_token_s


@dataclass
class RowPace:
    """Told of every answer that leaves its row, and of how long first tokens took from there."""

    _answers: float = 0.0
    _tokens: float = 0.0
    _longest: float = 0.0
    _firsts: float = 0.0
    _first_s: float = 0.0
    _line: PromptLine = field(default_factory=PromptLine)
    _ends: RowEnds = field(default_factory=RowEnds)

    def began(self, first_token_s: float, ahead: int | None = None) -> None:
        """So long after it was given its row an answer had its first token, behind the prompts of so many others; None:
        it waited for a row as well, in the engine."""
        if ahead is not None:
            self._line = self._line.after(ahead, first_token_s)
        self._firsts = _KEPT * self._firsts + 1.0
        self._first_s = _KEPT * self._first_s + first_token_s

    def ended(self, tokens: int) -> None:
        """A row is free again after so many tokens, whatever ended them."""
        self._answers = _KEPT * self._answers + 1.0
        self._tokens = _KEPT * self._tokens + tokens
        self._longest = max(_KEPT * self._longest, tokens)
        self._ends.ended(tokens)

    def foresee(self, row: Forecast | None, prompts: int) -> Forecast | None:
        """Of a request that waits for what `row` says, if for any, and for so many prompts before its own, whichever
        takes longer: rows become free while prompts are computed."""
        line = self._line.wait(prompts)
        if line is None:
            return row
        found = Forecast(
            mean_s=line.mean_s, late_s=line.late_s, first_token_s=line.alone_s, row_s=line.prompt_s, awaits="prompts"
        )
        return found if row is None or found.in_time_s > row.in_time_s else row

    def forecast_by(
        self, rows: Sequence[Row], before: int, free_rows: int, max_rows: int, tokens_per_s: float
    ) -> Forecast | None:
        """The same by how far the answers in all `rows` are as well, whichever is later, and before any of them has
        ended. Who comes meanwhile and has had less goes first, so that even known ends leave a chance to be late.
        Beyond half of the rows their pace alone counts: those of them that end first are taken again. So it does
        while rows are free for some of those before: how far theirs will be nobody knows."""
        count, paced = before - free_rows + 1, self.forecast(before, free_rows, max_rows, tokens_per_s)
        if len(rows) < max_rows or (2 * count > max_rows and self._ends.known):
            return paced
        if count <= 0 or tokens_per_s <= 0:
            return None
        found, step_s = self._ends.free(min(count, max_rows), rows), max_rows / tokens_per_s
        by_ends = Forecast(
            mean_s=found.mean * step_s,
            late_s=found.late * step_s,
            first_token_s=self._first_s / self._firsts if self._firsts else 0.0,
            row_s=found.mean * step_s / count,
        )
        return by_ends if paced is None or by_ends.late_s > paced.late_s else paced

    def forecast(self, before: int, free_rows: int, max_rows: int, tokens_per_s: float) -> Forecast | None:
        """`before` requests have their rows first; `tokens_per_s` is what all rows produce together, 0 if that is
        not known. None: there is a row for it, or nobody can tell. No row is held for longer than the longest answers
        of lately take: where rows are few, or answers alike, that says more than their mean does."""
        rows = before - free_rows + 1
        if rows <= 0 or tokens_per_s <= 0 or self._answers < _LEAST_WEIGHT or not self._tokens:
            return None
        row_s = self._tokens / self._answers / tokens_per_s
        rounds = math.ceil(rows / max_rows)
        return Forecast(
            mean_s=rows * row_s,
            late_s=min(_late(rows) * row_s, rounds * self._longest * max_rows / tokens_per_s),
            first_token_s=self._first_s / self._firsts if self._firsts else 0.0,
            row_s=row_s,
        )


def behind(found: Forecast | None, prompts: PromptWait | None) -> Forecast | None:
    """Of a request that waits for what was `found`, or for the prompts before its own if that takes longer."""
    if prompts is None:
        return found
    line = Forecast(
        mean_s=prompts.mean_s, late_s=prompts.mean_s, first_token_s=prompts.alone_s, row_s=prompts.prompt_s,
        awaits="prompts",
    )  # fmt: skip
    return line if found is None or line.in_time_s > found.in_time_s else found


def with_margin(found: Forecast, times: float) -> Forecast:
    """In time only if `times` as long as the mean were as well."""
    longest_s = times * (found.mean_s + found.first_token_s) - found.first_token_s
    return msgspec.structs.replace(found, late_s=max(found.late_s, longest_s))


def before(waiting: Mapping[str, int], weight: Callable[[str], float], tenant_id: str) -> int:
    """How many of those who wait, by customer, have their turn before one more request of `tenant_id`: its own, and of
    each other customer as many as its share allows meanwhile."""
    own = waiting.get(tenant_id, 0)
    turns = (own + 1) / weight(tenant_id)
    others = (min(count, turns * weight(name)) for name, count in waiting.items() if name != tenant_id)
    return own + round(sum(others))


def _late(events: int) -> float:
    """How many mean gaps the last of so many random events is late in one case of twenty: of gaps that are independent
    and exponential, as those between the ends of many answers nearly are (Wilson and Hilferty's approximation)."""
    return float(events * (1.0 - 1.0 / (9.0 * events) + _ONE_IN_TWENTY / (3.0 * events**0.5)) ** 3)
