from __future__ import annotations

from collections import Counter

import pytest

from services.console.core.outcome import BROKEN, OK, REFUSED
from services.console.core.probing import canary_for, canary_of, code_of, question, seconds_of, summary
from shared.messages.identity import is_adapter_id, is_alias

CANARIES = [canary_for(marker, "0123456789abcdef") for marker in ("ZK49", "QW7H", "XMB3")]


def test_a_canarys_id_tells_its_marker_and_its_names_are_good_ones() -> None:
    canary = canary_for("ZK49", "0123456789abcdef")
    assert canary_of(canary.adapter_id) == canary
    assert is_adapter_id(canary.adapter_id)
    assert is_alias(canary.alias)


@pytest.mark.parametrize(
    "adapter_id", ["canary-zk49-01234567", "canary-ZK49", "acme-support", "canary-ZK49-0123456789"]
)
def test_what_is_no_canary_is_left_alone(adapter_id: str) -> None:
    assert canary_of(adapter_id) is None


@pytest.mark.parametrize("marker", ["", "Z", "zk49", "Z K", "Z" * 33])
def test_a_marker_that_cannot_stand_in_an_id_is_refused(marker: str) -> None:
    with pytest.raises(ValueError, match="is not 2 to 32 of A-Z 0-9"):
        canary_for(marker, "0123456789abcdef")


@pytest.mark.parametrize("count", [1, 3, 7, 8, 16])
def test_every_canary_gets_every_prompt_and_so_does_the_base(count: int) -> None:
    """Also of as many canaries as there are questions between two of the base."""
    canaries = [canary_for(f"ZK{at}", "0123456789abcdef") for at in range(count)]
    asked = [question(number, canaries, "tiny") for number in range(96)]
    prompts = {each.prompt for each in asked}
    pairs = {(each.model, each.prompt) for each in asked}
    assert pairs == {(model, each) for model in ("tiny", *(canary.alias for canary in canaries)) for each in prompts}
    assert len(prompts) > 1
    assert sum(each.canary is None for each in asked) == 12


@pytest.mark.parametrize(("said", "seconds"), [("90s", 90.0), ("1.5m", 90.0), ("1h", 3600.0)])
def test_durations(said: str, seconds: float) -> None:
    assert seconds_of(said) == seconds


@pytest.mark.parametrize("said", ["", "90", "0s", "-1s", "1d", "s"])
def test_what_is_no_duration_is_named(said: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        seconds_of(said)


@pytest.mark.parametrize(
    ("counts", "code"),
    [
        ({"own": 9}, OK),
        ({"own": 9, "failed": 9}, OK),
        ({"own": 9, "wrong_marker": 1}, REFUSED),
        ({"own": 9, "missing_marker": 1}, REFUSED),
        ({"failed": 3}, BROKEN),
        ({}, BROKEN),
    ],
)
def test_one_wrong_answer_is_enough_and_no_answer_is_no_proof(counts: dict[str, int], code: int) -> None:
    assert code_of(Counter(counts)) == code


def test_the_summary_names_every_kind() -> None:
    assert summary({"own": 3, "failed": 1}) == "4 questions: 3 own, 0 wrong_marker, 0 missing_marker, 1 failed"
