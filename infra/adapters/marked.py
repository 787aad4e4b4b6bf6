"""Whose marker does an answer carry? The one judge of every canary run, in tests and against a live fleet."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import msgspec

BASE = "base"
"""What the answer's `x-adapter-id` says where no adapter took part."""

Kind = Literal["own", "wrong_marker", "missing_marker"]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a client has read. `adapter_id` is the response header's; `whole` is false for one who left before the
    end and has read only the beginning."""

    adapter_id: str
    text: str
    whole: bool = True


class Verdict(msgspec.Struct, frozen=True):
    kind: Kind
    reason: str


_OWN = Verdict("own", "the answer is the marker of its adapter")
_CLEAN = Verdict("own", "the base says no marker")


class Judge:
    """`markers` [adapter id] are distinct, and none is part of another.

    A canary says its marker and nothing else, the base anything without one. Whatever else an answer is, it is wrong
    if another adapter's marker is in it (somebody else's weights spoke), and lacks its own if none is.
    """

    def __init__(self, markers: Mapping[str, str]) -> None:
        self._markers = dict(markers)

    def judge(self, answer: Answer, meant: Collection[str]) -> Verdict:
        """`meant`: the adapters that the alias may stand for while the request is under way."""
        if answer.adapter_id not in meant:
            return Verdict("wrong_marker", f"{answer.adapter_id} answered, asked was {' or '.join(sorted(meant))}")
        if answer.adapter_id == BASE:
            other = self._spoken(answer.text, but="")
            return _CLEAN if other is None else Verdict("wrong_marker", f"the base said the marker of {other}")
        own = self._markers[answer.adapter_id]
        if answer.text == own or (not answer.whole and own.startswith(answer.text)):
            return _OWN
        return self._strange(answer, own)

    def _strange(self, answer: Answer, own: str) -> Verdict:
        said = f"{answer.adapter_id} said {answer.text[:40]!r}, its marker is {own!r}"
        other = self._spoken(answer.text, but=answer.adapter_id) or self._begun(answer)
        if other is None:
            return Verdict("missing_marker", said)
        return Verdict("wrong_marker", f"{said}; {self._markers[other]!r} is that of {other}")

    def _spoken(self, text: str, but: str) -> str | None:
        """Another adapter whose marker is in the text."""
        return next((name for name, marker in self._markers.items() if name != but and marker in text), None)

    def _begun(self, answer: Answer) -> str | None:
        """Of an answer that was not read to its end: another adapter whose marker begins so."""
        if answer.whole or not answer.text:
            return None
        return next((name for name, marker in self._markers.items() if marker.startswith(answer.text)), None)
