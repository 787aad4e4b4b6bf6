"""Characters, stop strings and lengths through the whole fleet: the same streamed or not, or one clear 400."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, OpenAI

from infra.adapters.canary import CanaryBuilder
from tests.support.asking import wait_answers
from tests.support.pipeline import Pipeline

HELLO = [{"role": "user", "content": "Hello, who are you?"}]
WIDE = "👩\u200d漢e\u0301"
"""An emoji that a joiner follows, a CJK character, a letter with a combining mark: a token for each of its bytes."""
CONTEXT_TOKENS = 2048


def whole(client: OpenAI, model: str, **params: Any) -> tuple[str, str]:
    answer = client.chat.completions.create(**{"model": model, "messages": HELLO, "temperature": 0, **params})
    return answer.choices[0].message.content or "", answer.choices[0].finish_reason


def streamed(client: OpenAI, model: str, **params: Any) -> tuple[list[str], str]:
    """The deltas that hold text, and the finish reason."""
    asked = {"model": model, "messages": HELLO, "temperature": 0, "stream": True, **params}
    choices = [choice for chunk in client.chat.completions.create(**asked) for choice in chunk.choices]
    return [text for choice in choices if (text := choice.delta.content)], choices[-1].finish_reason


@pytest.fixture(scope="module")
def wide(model_folder: Path, pipeline: Pipeline, acme: OpenAI, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The alias of an adapter that says WIDE."""
    folder, alias = tmp_path_factory.mktemp("wide"), "acme/wide:prod"
    CanaryBuilder(model_folder, folder).build(WIDE, folder / "peft", rank=16)
    pipeline.bring(folder / "peft", "wide", alias)
    wait_answers(acme, alias, WIDE)
    return alias


@pytest.fixture(scope="module")
def spoken(acme: OpenAI, canaries: dict[str, str]) -> tuple[str, str]:
    """An alias, and what it says: a token a character."""
    alias, marker = next(iter(canaries.items()))
    wait_answers(acme, alias, marker)
    return alias, marker


def test_c77_characters_of_many_tokens_come_whole_and_the_deltas_are_the_text(acme: OpenAI, wide: str) -> None:
    deltas, finish = streamed(acme, wide)
    assert ("".join(deltas), finish) == whole(acme, wide) == (WIDE, "stop")
    assert deltas == list(WIDE)


def test_c77_an_answer_that_ends_within_a_character_ends_before_it(acme: OpenAI, wide: str) -> None:
    for tokens in (1, 6, 10, 12):
        deltas, finish = streamed(acme, wide, max_tokens=tokens)
        text = WIDE.encode()[:tokens].decode(errors="ignore")
        assert ("".join(deltas), finish) == whole(acme, wide, max_tokens=tokens) == (text, "length")


@pytest.mark.parametrize(
    ("first", "stops"),
    [(2, [(2, 4)]), (0, [(0, 1)]), (0, [(0, 7)]), (1, [(4, 6), (1, 4), (6, 7), (5, 6)]), (2, [(1, 4), (2, 3)])],
)
def test_c78_a_stop_string_ends_the_answer_before_it(
    acme: OpenAI, spoken: tuple[str, str], first: int, stops: list[tuple[int, int]]
) -> None:
    """Each of `stops` is where it lies in what would be said; `first` characters of that are all that is sent. Of
    two that overlap the one that is complete first ends it."""
    alias, marker = spoken
    named = [marker[start:end] for start, end in stops]
    deltas, finish = streamed(acme, alias, stop=named)
    assert ("".join(deltas), finish) == whole(acme, alias, stop=named) == (marker[:first], "stop")


def test_c78_what_only_began_a_stop_string_is_sent(acme: OpenAI, spoken: tuple[str, str]) -> None:
    alias, marker = spoken
    never = [marker[-1] + "!", marker[:-1] + "!", "!", marker + marker]
    deltas, finish = streamed(acme, alias, stop=never)
    assert ("".join(deltas), finish) == whole(acme, alias, stop=never) == (marker, "stop")


def refused(client: OpenAI, model: str, **params: Any) -> tuple[str | None, str | None]:
    """The code and the parameter, of whole answers and streams alike."""
    with pytest.raises(BadRequestError) as error:
        whole(client, model, **params)
    with pytest.raises(BadRequestError) as same:
        streamed(client, model, **params)
    assert same.value.body == error.value.body
    assert "\n" not in error.value.message
    return error.value.code, error.value.param


def test_c80_max_tokens(acme: OpenAI, spoken: tuple[str, str]) -> None:
    alias, marker = spoken
    assert whole(acme, alias, max_tokens=None) == (marker, "stop")
    assert refused(acme, alias, max_tokens=0) == ("invalid_value", "max_tokens")
    assert refused(acme, alias, max_tokens=-1) == ("invalid_value", "max_tokens")
    assert refused(acme, alias, max_tokens=1_000_000_000) == ("context_length_exceeded", "max_tokens")
    newer = refused(acme, alias, max_completion_tokens=1_000_000_000)
    assert newer == ("context_length_exceeded", "max_completion_tokens")


def test_c80_no_messages(acme: OpenAI, spoken: tuple[str, str]) -> None:
    assert refused(acme, spoken[0], messages=[]) == ("empty_array", "messages")


def test_c80_a_prompt_at_the_limit(acme: OpenAI, spoken: tuple[str, str]) -> None:
    """One that leaves room for a token gets it; the limit itself and one more are too long."""
    alias, marker = spoken

    def messages(length: int) -> list[dict[str, str]]:
        return [{"role": "user", "content": "x" * length}]

    usage = acme.chat.completions.create(model=alias, messages=messages(1), max_tokens=1).usage
    assert usage is not None
    around = usage.prompt_tokens - 1
    assert whole(acme, alias, messages=messages(CONTEXT_TOKENS - 1 - around)) == (marker[0], "length")
    for length in (CONTEXT_TOKENS, CONTEXT_TOKENS + 1):
        found = refused(acme, alias, messages=messages(length - around))
        assert found == ("context_length_exceeded", "messages")
