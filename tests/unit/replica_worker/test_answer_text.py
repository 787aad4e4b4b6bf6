"""Text for the client: whole characters, no stop string, and the same from two replicas as from one."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.replica_worker.requests.answer_text import AnswerText
from services.replica_worker.text.tokenizer import Tokenizer

SENTENCE = "Zoë and 👩‍🚀 say 漢字, e\u0301 and STOP here"


@pytest.fixture(scope="module")
def tokenizer(model_folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(model_folder)


def said(text: AnswerText, token_ids: list[int]) -> str:
    parts = []
    for token_id in token_ids:
        parts.append(text.push(token_id))
        if text.stopped:
            return "".join(parts)
    return "".join([*parts, text.flush()])


def test_c77_no_character_is_ever_shown_in_part(tokenizer: Tokenizer) -> None:
    token_ids = tokenizer.encode_text(SENTENCE)
    text = AnswerText(tokenizer, ())
    deltas = [text.push(token_id) for token_id in token_ids]
    assert "\ufffd" not in "".join(deltas)
    assert "".join([*deltas, text.flush()]) == SENTENCE


def test_c77_an_answer_cut_inside_a_character_ends_before_it(tokenizer: Tokenizer) -> None:
    token_ids = tokenizer.encode_text(SENTENCE)
    for length in range(len(token_ids)):
        whole = said(AnswerText(tokenizer, ()), token_ids[:length])
        assert SENTENCE.startswith(whole)


@pytest.mark.parametrize("stop", [(), ("STOP",), ("字, e", "STOP"), ("never",)])
def test_a_continuation_at_any_token_sends_the_rest_and_nothing_twice(
    tokenizer: Tokenizer, stop: tuple[str, ...]
) -> None:
    token_ids = tokenizer.encode_text(SENTENCE)
    alone = AnswerText(tokenizer, stop)
    whole = said(alone, token_ids)
    assert whole == SENTENCE.split(stop[0])[0] if stop else SENTENCE
    for at in range(len(token_ids)):
        first = AnswerText(tokenizer, stop)
        begun = "".join(first.push(token_id) for token_id in token_ids[:at])
        if first.stopped:
            break
        assert begun + said(AnswerText(tokenizer, stop, token_ids[:at]), token_ids[at:]) == whole
