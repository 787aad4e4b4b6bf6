"""How much later than foreseen first tokens may come, by whether those who were let in had theirs in time: what no
forecast knows (other processes on its cores, an engine's own order) shows there."""

from __future__ import annotations

import math
from dataclasses import dataclass

LATE_SHARE = 0.05
_GAIN = 0.2
_LEAST, _MOST = 1.5, 3.0


@dataclass
class Margin:
    """`times` the mean that is foreseen is to be in time as well. A late first token raises it, one in time lowers it
    by a nineteenth of that, so that it rests where one in twenty is late (Robbins and Monro's approximation of a
    quantile). Late ones within one objective of each other are one event, as lost packets of a round trip are to TCP:
    a pause of the process holds up many."""

    times: float = _LEAST
    _raised_at_s: float = -math.inf

    def began(self, took_s: float, objective_s: float, now_s: float) -> None:
        """A request that was let in has had its first token so long after nothing was missing but its turn."""
        if not objective_s:
            return
        if took_s <= objective_s:
            self.times = max(_LEAST, self.times * math.exp(-_GAIN * LATE_SHARE))
        elif now_s - self._raised_at_s >= objective_s:
            self.times = min(_MOST, self.times * math.exp(_GAIN * (1.0 - LATE_SHARE)))
            self._raised_at_s = now_s
