"""What is asked of every front door."""

from __future__ import annotations

import msgspec


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the load client: requests as they come, `rate_per_s`, or `streams` of them one after the other.
    `pace_us` is the step of the backends, 0: as fast as they can. `timed`: in front of timed replicas, which have steps
    of their own."""

    name: str
    rate_per_s: float = 0.0
    streams: int = 0
    tokens: int
    pace_us: int = 0
    prompt_bytes: int = 64
    warm_up_s: float
    for_s: float
    timed: bool = False

    def words(self) -> list[str]:
        """For the client."""
        load = ["--rate", f"{self.rate_per_s:g}"] if self.rate_per_s else ["--streams", str(self.streams)]
        return [
            *load, "--tokens", str(self.tokens), "--pace-us", str(self.pace_us), "--prompt-bytes",
            str(self.prompt_bytes), "--warm-up-s", f"{self.warm_up_s:g}", "--for-s", f"{self.for_s:g}",
        ]  # fmt: skip


STEP_US = 25_000
OPEN = Scenario(name="open40", rate_per_s=40.0, tokens=250, pace_us=STEP_US, warm_up_s=7.5, for_s=9.0, timed=True)
"""250 streams at once, 10,000 tokens a second, once the first ones have ended."""
FLOOD = Scenario(name="flood", streams=32, tokens=250, warm_up_s=1.5, for_s=5.0)
ONE_TOKEN = Scenario(name="req1", streams=32, tokens=1, prompt_bytes=1024, warm_up_s=1.5, for_s=5.0)
FEW = Scenario(name="few", streams=100, tokens=120, pace_us=1_000_000, warm_up_s=3.0, for_s=1.0)
MANY = Scenario(name="many", streams=2_000, tokens=120, pace_us=1_000_000, warm_up_s=6.0, for_s=1.0)
"""Open streams that say little: what each of them takes of memory."""
ALL = (OPEN, FLOOD, ONE_TOKEN, FEW, MANY)
