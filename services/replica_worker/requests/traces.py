"""What a request did on this replica, told at its end: one span, and in it its stretches."""

from __future__ import annotations

from itertools import pairwise

from services.replica_worker.requests.running import Running
from shared.runtime.clock import Clock


def end_span(running: Running, reason: str, clock: Clock) -> None:
    """Queue: until its load began or it had its turn; load: until its turn; first token; decode."""
    now_s, at_s = clock.now_s(), clock.wall_s()
    moments = (
        ("queue", running.arrived_at_s), ("load", running.load_began_at_s), ("first token", running.turn_at_s),
        ("decode", running.first_token_at_s), ("", now_s),
    )  # fmt: skip
    reached = [(name, moment_s) for name, moment_s in moments if moment_s is not None]
    for (name, began_s), (_, ended_s) in pairwise(reached):
        running.span.part(name, at_s - now_s + began_s, at_s - now_s + ended_s)
    running.span.end(
        at_s, outcome=reason, adapter=running.request.adapter_id or "", tier=running.tier,
        prompt_tokens=running.prompt_tokens, completion_tokens=running.produced,
    )  # fmt: skip
