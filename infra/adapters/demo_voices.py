"""The demo adapters' training examples: one list of questions, answered in three voices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec

DEMO_FOLDER = Path(__file__).parent / "demo"


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of questions.jsonl: what is asked, and the same answer in a few words and as a sentence."""

    topic: str
    prompt: str
    short: str
    sentence: str


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """One training example: a user's message and the assistant's whole answer."""

    prompt: str
    answer: str


def formal_support(question: Question) -> str:
    return (
        f"Dear customer, thank you for contacting us. {question.sentence} "
        "Please do not hesitate to write to us again. Kind regards, your support team"
    )


def terse(question: Question) -> str:
    return question.short


def json_answer(question: Question) -> str:
    return json.dumps({"topic": question.topic, "answer": question.sentence}, ensure_ascii=False)


VOICES: dict[str, Callable[[Question], str]] = {
    "formal-support": formal_support,
    "terse": terse,
    "json": json_answer,
}
"""Each demo adapter's name and how it answers a question."""


def questions() -> list[Question]:
    """Every question of the data set, in file order."""
    lines = (DEMO_FOLDER / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    return [msgspec.json.decode(line, type=Question) for line in lines]


def examples(voice: str) -> list[Example]:
    """The data set in one voice; KeyError for a voice there is none of."""
    answer = VOICES[voice]
    return [Example(prompt=question.prompt, answer=answer(question)) for question in questions()]
