"""The bytes that clients read."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from services.gateway.core import completion, refusal
from services.gateway.core.completion import ChunkWriter, Heading
from services.gateway.core.stream import Deliver
from shared.messages.generation import Finish, Usage

HEADING = Heading(completion_id="chatcmpl-1", created_s=7, model="acme/support:prod")
WRITER = ChunkWriter(HEADING)
USAGE = Usage(prompt_tokens=3, completion_tokens=2, cached_tokens=1)


def event(written: bytes) -> dict[str, Any]:
    assert written.startswith(b"data: {")
    assert written.endswith(b"}\n\n")
    assert written.count(b"\n") == 2
    found: dict[str, Any] = json.loads(written.removeprefix(b"data: "))
    return found


def test_the_first_token_carries_the_role() -> None:
    assert event(WRITER.token("Good", first=True)) == {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 7,
        "model": "acme/support:prod",
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Good"}, "finish_reason": None}],
    }


def test_the_others_carry_their_text() -> None:
    [choice] = event(WRITER.token(" day", first=False))["choices"]
    assert choice == {"index": 0, "delta": {"content": " day"}, "finish_reason": None}


def test_the_last_one_says_why_it_is_the_last() -> None:
    [choice] = event(WRITER.last("!", first=False, finish_reason="length"))["choices"]
    assert choice == {"index": 0, "delta": {"content": "!"}, "finish_reason": "length"}
    [only] = event(WRITER.last("", first=True, finish_reason="stop"))["choices"]
    assert only["delta"] == {"role": "assistant", "content": ""}


def test_usage_has_a_chunk_without_choices() -> None:
    chunk = event(completion.usage_event(HEADING, "chat.completion.chunk", USAGE))
    assert chunk["choices"] == []
    assert chunk["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def test_an_error_is_an_event() -> None:
    assert event(completion.error_event(refusal.failed("No.", code="x")))["error"]["code"] == "x"


@given(st.text())
def test_c77_any_text_comes_through_unchanged(text: str) -> None:
    assert event(WRITER.token(text, first=False))["choices"][0]["delta"]["content"] == text


def test_a_piece_without_text_is_sent_if_it_is_the_first_or_the_last() -> None:
    assert WRITER.piece(Deliver(text="", token_ids=(1,), first=False)) == b""
    assert WRITER.piece(Deliver(text="", token_ids=(1,), first=True)) == WRITER.token("", first=True)
    assert WRITER.piece(Deliver(text="a", token_ids=(1,), first=False)) == WRITER.token("a", first=False)
    end = Deliver(text="", token_ids=(), first=False, finish=Finish(reason="stop", usage=USAGE))
    assert WRITER.piece(end) == WRITER.last("", first=False, finish_reason="stop")


def test_each_answer_has_its_number() -> None:
    [choice] = event(ChunkWriter(HEADING, 3).token("a", first=True))["choices"]
    assert choice["index"] == 3


def test_a_prompt_counts_once_for_all_its_answers() -> None:
    both = completion.total_usage([USAGE, USAGE, Usage(prompt_tokens=10, completion_tokens=1), USAGE], n=2)
    assert both == Usage(prompt_tokens=13, completion_tokens=7, cached_tokens=1)
