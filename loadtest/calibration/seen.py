"""What became of a request of a measured run, as its client and its gateway saw it."""

from __future__ import annotations

import msgspec


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A request to be sent at its moment. `request_id` finds it again in the gateway's log."""

    at_s: float
    adapter: int
    alias: str
    key: str
    prompt: str
    max_tokens: int
    request_id: str


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """Times since the run began; `first_s` None: no token came. `tokens` and `prompt_tokens` are as the fleet counted
    them, `replica` is who answered in the end, after so many `attempts`."""

    request_id: str
    adapter: int
    planned_s: float
    sent_s: float
    first_s: float | None
    ended_s: float
    outcome: str
    """"ok", or the status or sentence of its failure."""
    tier: str = ""
    replica: str = ""
    prompt_tokens: int = 0
    tokens: int = 0
    attempts: int = 0
    gateway_ttft_s: float | None = None
    """From the request's beginning in the gateway to its first token there."""

    @property
    def ttft_s(self) -> float | None:
        return None if self.first_s is None else self.first_s - self.sent_s

    @property
    def step_s(self) -> float | None:
        """Each token after the first took so long, on average; None if there is none."""
        if self.first_s is None or self.tokens < 2:
            return None
        return (self.ended_s - self.first_s) / (self.tokens - 1)
