"""The bytes that clients read."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from services.gateway.core import completion, refusal
from services.gateway.core.completion import ChunkWriter, Heading
from shared.messages.generation import Usage

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
    chunk = event(WRITER.usage(USAGE))
    assert chunk["choices"] == []
    assert chunk["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 1},
    }


def test_an_error_is_an_event() -> None:
    assert event(completion.error_event(refusal.failed("No.", code="x")))["error"]["code"] == "x"


@given(st.text())
def test_c77_any_text_comes_through_unchanged(text: str) -> None:
    assert event(WRITER.token(text, first=False))["choices"][0]["delta"]["content"] == text
    assert json.loads(completion.whole(HEADING, text, "stop", USAGE))["choices"][0]["message"]["content"] == text


def test_a_whole_answer() -> None:
    answer = json.loads(completion.whole(HEADING, "Good day", "stop", USAGE))
    assert (answer["id"], answer["object"], answer["created"]) == ("chatcmpl-1", "chat.completion", 7)
    assert answer["usage"]["total_tokens"] == 5
