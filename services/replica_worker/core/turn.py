"""When the turn of one more request would come, from all that this replica has seen of its rows and prompts."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .capacity import Capacity
from .margin import Margin
from .row_ends import Row
from .row_pace import Forecast, RowPace, behind, with_margin


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """Who is here as it comes: `before` have their rows first, of `handed` that are in the engine `prompts` have had no
    first token. `rows`: how far the answers in rows are; fewer than rows if some are free, for those before it."""

    before: int
    free_rows: int
    max_rows: int
    prompts: int
    handed: int
    rows: Sequence[Row] = ()


def turn_of(line: Line, objective_s: float, pace: RowPace, capacity: Capacity, margin: Margin) -> Forecast | None:
    """None: now, or nobody can tell. Without an objective only the pace of many answers counts: what ends it is a
    deadline, and a guess of the first steps is no reason to refuse what may wait."""
    where = line.before, line.free_rows, line.max_rows, capacity.measured_tokens_per_s(line.max_rows)
    row = pace.forecast_by(line.rows, *where) if objective_s else pace.forecast(*where)
    ahead = line.prompts + line.before
    found = pace.foresee(row, ahead)
    if not objective_s:
        return found
    then = min(line.max_rows, line.handed + line.before + 1)
    found = behind(found, capacity.prompt_wait(ahead, then))
    return None if found is None else with_margin(found, margin.times)
