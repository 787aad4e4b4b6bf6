"""What `lorafleet probe` asks a live fleet, and what the answers come to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from services.console.core.outcome import BROKEN, OK, REFUSED

TENANT = "lorafleet-probe"
"""Whose canaries they are: no customer's key reaches them, and this one's reaches no customer's adapter."""
FAILED = "failed"
VERDICTS = ("own", "wrong_marker", "missing_marker", FAILED)
MAX_TOKENS = 16
_BASE_EVERY = 8
"""So many questions, and the base is asked one of them."""
_MARKER = re.compile(r"[A-Z0-9]{2,32}")
_CANARY = re.compile(r"canary-([A-Z0-9]{2,32})-([0-9a-f]{8})")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(s|m|h)")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_PROMPTS = (
    "My parcel has not arrived. What can I do?",
    "Which plan fits a team of five?",
    "My parcel has not arrived. Where is it?",
    "Hello!",
)


class Canary(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter that answers every chat with its marker, and the alias that it is asked by."""

    adapter_id: str
    alias: str
    marker: str


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """`canary` is None for the base model."""

    model: str
    prompt: str
    canary: Canary | None


def canary_for(marker: str, checksum: str) -> Canary:
    """How a canary is registered: its id tells whoever finds it what it says. Raises ValueError for a marker that
    cannot stand there."""
    if _MARKER.fullmatch(marker) is None:
        raise ValueError(f"the marker {marker!r} is not 2 to 32 of A-Z 0-9")
    digits = checksum[:8]
    alias = f"{TENANT}/{marker.lower()}-{digits}:live"
    return Canary(adapter_id=f"canary-{marker}-{digits}", alias=alias, marker=marker)


def canary_of(adapter_id: str) -> Canary | None:
    """The canary that was registered under this id, or None if it is no canary's."""
    named = _CANARY.fullmatch(adapter_id)
    return None if named is None else canary_for(*named.groups())


def question(number: int, canaries: Sequence[Canary], base_name: str) -> Question:
    """One canary after the other, all with the same few prompts, so that a cache that mixes them up is met, too. The
    base is asked between two of them: it takes nobody's turn."""
    turn, place = divmod(number, _BASE_EVERY)
    if place == _BASE_EVERY - 1:
        return Question(model=base_name, prompt=_PROMPTS[turn % len(_PROMPTS)], canary=None)
    around, at = divmod(number - turn, len(canaries))
    return Question(model=canaries[at].alias, prompt=_PROMPTS[around % len(_PROMPTS)], canary=canaries[at])


def seconds_of(duration: str) -> float:
    """Of "90s", "10m" or "1h". Raises ValueError."""
    said = _DURATION.fullmatch(duration)
    if said is None or float(said[1]) <= 0:
        raise ValueError(f"{duration!r} is no duration such as 90s, 10m or 1h")
    return float(said[1]) * _SECONDS[said[2]]


def summary(counts: Mapping[str, int]) -> str:
    return f"{sum(counts.values())} questions: " + ", ".join(f"{counts.get(kind, 0)} {kind}" for kind in VERDICTS)


def code_of(counts: Counter[str]) -> int:
    """The exit code: one wrong answer is enough, and no answer at all is no proof."""
    if counts["wrong_marker"] or counts["missing_marker"]:
        return REFUSED
    return OK if counts["own"] else BROKEN
