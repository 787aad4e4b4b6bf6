"""Does every answer carry the marker of its adapter? The judge is that of the isolation test and of the probe."""

from __future__ import annotations

from collections.abc import Mapping

from infra.adapters.marked import BASE, Judge
from infra.adapters.marked import Answer as Said
from loadtest.driver.answer import Answer

WRONG = ("wrong_marker", "missing_marker")


class Markers:
    """`markers` [alias]; who has none is taken for the base, which says nobody's. Markers are distinct, and none is
    part of another; two aliases may have the same, as two names of one adapter."""

    def __init__(self, markers: Mapping[str, str]) -> None:
        self._markers = dict(markers)
        self._judge = Judge({marker: marker for marker in markers.values()})

    def judge(self, alias: str, answer: Answer) -> str:
        """One of "own", "wrong_marker" and "missing_marker", which is also what cannot be read."""
        meant = self._markers.get(alias, BASE)
        try:
            said = Said(adapter_id=meant, text=answer.text(), whole=not answer.cut_short)
        except ValueError:
            return "missing_marker"
        return self._judge.judge(said, (meant,)).kind
