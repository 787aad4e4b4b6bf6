"""Probes that prove loads: each a few tokens of a step, in a row of its own beside the others."""

from __future__ import annotations

from collections.abc import Callable

from services.replica_worker.core.effect import probe_prompt

PROBE_TOKENS = len(probe_prompt(vocabulary_size=32_000))


class Probes:
    """`waiting` for the next step: what is to be called when it is over."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self._under_way: list[Callable[[], None]] = []

    def begin(self) -> int:
        """A step that computes all that wait; returns of how many tokens."""
        self._under_way, self.waiting = self.waiting, []
        return PROBE_TOKENS * len(self._under_way)

    def end(self) -> None:
        """That step is over."""
        for done in self._under_way:
            done()
