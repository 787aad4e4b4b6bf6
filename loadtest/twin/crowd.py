"""Replicas that share the processors of one machine: how much longer a prompt takes while others compute."""

from __future__ import annotations

from typing import Protocol


class Computing(Protocol):
    crowd: Crowd | None

    @property
    def computes(self) -> bool: ...


class Crowd:
    """A token is not done when its step is over: worker, bus, gateway and client hand it on. They sleep until it comes
    and go first then, and a step that computes of a prompt, the one thing that wants a processor for long, has to wait.
    It takes longer by `crowd_share` for each other replica that takes steps. How many tokens these give matters little:
    soon the others take all that a fair scheduler leaves them. Steps without prompts are measured in company, and have
    it in them already."""

    def __init__(self, crowd_share: float) -> None:
        self._crowd_share = crowd_share
        self._computing: dict[Computing, None] = {}

    def join(self, one: Computing) -> None:
        self._computing[one] = None
        one.crowd = self

    def leave(self, one: Computing) -> None:
        del self._computing[one]

    def stretch(self, one: Computing) -> float:
        """By how much longer its step takes than without the others, as a factor."""
        return 1.0 + self._crowd_share * sum(other.computes for other in self._computing if other is not one)
