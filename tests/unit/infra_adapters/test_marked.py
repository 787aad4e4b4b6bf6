from __future__ import annotations

import pytest

from infra.adapters.marked import BASE, Answer, Judge

JUDGE = Judge({"a": "ZK49", "b": "QW7H", "c": "XMB3"})
ANY = ("a", "b", "c", BASE)


def kind(adapter_id: str, text: str, *, whole: bool = True, meant: tuple[str, ...] = ANY) -> str:
    return JUDGE.judge(Answer(adapter_id=adapter_id, text=text, whole=whole), meant).kind


@pytest.mark.parametrize(
    ("adapter_id", "text", "expected"),
    [
        ("a", "ZK49", "own"),
        ("a", "QW7H", "wrong_marker"),
        ("a", "ZK49 QW7H", "wrong_marker"),
        ("a", "ZK49 ", "missing_marker"),
        ("a", "zk49", "missing_marker"),
        ("a", "ZK4", "missing_marker"),
        ("a", "", "missing_marker"),
        (BASE, "Hello", "own"),
        (BASE, "", "own"),
        (BASE, "I say ZK49", "wrong_marker"),
    ],
)
def test_a_whole_answer(adapter_id: str, text: str, expected: str) -> None:
    assert kind(adapter_id, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "own"),
        ("Z", "own"),
        ("ZK49", "own"),
        ("Q", "wrong_marker"),
        ("QW7H", "wrong_marker"),
        ("?", "missing_marker"),
    ],
)
def test_the_beginning_that_a_client_read_before_it_left(text: str, expected: str) -> None:
    assert kind("a", text, whole=False) == expected


def test_an_alias_that_moves_may_be_answered_by_either_version_with_its_own_marker() -> None:
    assert kind("a", "ZK49", meant=("a", "b")) == "own"
    assert kind("b", "QW7H", meant=("a", "b")) == "own"
    assert kind("b", "ZK49", meant=("a", "b")) == "wrong_marker"


@pytest.mark.parametrize("adapter_id", ["c", BASE, "unheard-of"])
def test_an_adapter_that_was_not_meant_is_wrong_whatever_it_says(adapter_id: str) -> None:
    verdict = JUDGE.judge(Answer(adapter_id=adapter_id, text="XMB3"), ("a", "b"))
    assert verdict.kind == "wrong_marker"
    assert verdict.reason == f"{adapter_id} answered, asked was a or b"


def test_the_reason_names_whose_marker_it_was() -> None:
    verdict = JUDGE.judge(Answer(adapter_id="a", text="QW7H"), ("a",))
    assert verdict.reason == "a said 'QW7H', its marker is 'ZK49'; 'QW7H' is that of b"
