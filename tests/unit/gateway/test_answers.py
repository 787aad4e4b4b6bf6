"""Answers that tell more than one text: streams of them must come to the same as the whole."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from services.gateway.core.completion import DONE, Heading
from services.gateway.core.openai.answers import Scribe
from services.gateway.core.openapi.document import openapi
from services.gateway.core.stream import Deliver
from services.gateway.core.wish import Prompt, Tools, Wish
from shared.messages.generation import Finish, Sampling, TokenLogprob, TopToken, Usage

HEADING = Heading(completion_id="chatcmpl-7f", created_s=7, model="acme/support:prod")
USAGE = Usage(prompt_tokens=3, completion_tokens=2, cached_tokens=1)
LOGPROBS = Sampling(seed=0, top_logprobs=2)
TOOLS = Tools(offered="[]")
CALL = '<tool_call>{"name": "time", "arguments": {"at": 5}}</tool_call>'
DOCUMENT = msgspec.json.decode(openapi())


@cache
def described(name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]})


def conforms(name: str, answer: Any) -> None:
    described(name).validate(answer)


def wish(**changes: Any) -> Wish:
    return Wish(**{"model": "m", "prompts": (Prompt(text="Once"),), **changes})


def token(raw: bytes, logprob: float = -0.5) -> TokenLogprob:
    return TokenLogprob(1, raw, logprob, (TopToken(1, raw, logprob), TopToken(2, b"x", -math.inf)))


def answer(*texts: str, reason: str = "stop", tells: bool = False) -> list[Deliver]:
    """A token a text, and an end without any."""
    told = [(token(text.encode()),) if tells else () for text in texts]
    pieces = [Deliver(text=text, token_ids=(1,), first=at == 0, logprobs=told[at]) for at, text in enumerate(texts)]
    return [*pieces, Deliver(text="", token_ids=(), first=not texts, finish=Finish(reason=reason, usage=USAGE))]


def events(written: bytes) -> list[dict[str, Any]]:
    parts = written.decode().split("\n\n")
    assert parts.pop() == ""
    return [json.loads(part.removeprefix("data: ")) for part in parts]


def streamed(asked: Wish, pieces: list[Deliver]) -> list[dict[str, Any]]:
    """The choices of one answer's chunks."""
    [writer] = Scribe(msgspec.structs.replace(asked, stream=True), HEADING, "hermes").writers
    chunks = [chunk for piece in pieces for chunk in events(writer.piece(piece))]
    for chunk in chunks:
        conforms("CompletionAnswer" if asked.is_text else "ChatChunk", chunk)
        assert (chunk["id"], chunk["created"], chunk["model"]) == ("chatcmpl-7f", 7, "acme/support:prod")
    return [choice for chunk in chunks for choice in chunk["choices"]]


def whole(asked: Wish, *answers: list[Deliver]) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(Scribe(asked, HEADING, "hermes").whole(answers))
    conforms("CompletionAnswer" if asked.is_text else "ChatAnswer", body)
    return body


def test_a_plain_answer() -> None:
    body = whole(wish(), answer("Good", " day"))
    assert (body["id"], body["object"], body["created"]) == ("chatcmpl-7f", "chat.completion", 7)
    [choice] = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Good day", "refusal": None}
    assert (choice["finish_reason"], choice["logprobs"]) == ("stop", None)
    assert body["usage"]["total_tokens"] == 5


def test_several_answers_have_numbers_and_one_usage() -> None:
    body = whole(wish(n=2), answer("a"), answer("b", reason="length"))
    assert [choice["index"] for choice in body["choices"]] == [0, 1]
    assert [choice["message"]["content"] for choice in body["choices"]] == ["a", "b"]
    assert [choice["finish_reason"] for choice in body["choices"]] == ["stop", "length"]
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (3, 4)


def test_a_stream_ends_with_the_usage_of_all_if_that_is_wanted() -> None:
    assert Scribe(wish(stream=True), HEADING, "").ending([USAGE]) == DONE
    wanted = Scribe(wish(stream=True, include_usage=True, n=2), HEADING, "").ending([USAGE, USAGE])
    assert wanted.endswith(DONE)
    [chunk] = events(wanted.removesuffix(DONE))
    assert (chunk["choices"], chunk["usage"]["completion_tokens"]) == ([], 4)
    conforms("ChatChunk", chunk)


def test_a_call_is_streamed_as_openai_does() -> None:
    choices = streamed(wish(tools=TOOLS), answer("Let me", " look.\n", CALL[:20], CALL[20:]))
    assert [choice["delta"] for choice in choices] == [
        {"role": "assistant", "content": "Let me"},
        {"content": " look."},
        {
            "tool_calls": [
                {"index": 0, "id": "call_7f_0_0", "type": "function", "function": {"name": "time", "arguments": ""}}
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"at": 5}'}}]},
        {},
    ]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, None, "tool_calls"]


def test_a_whole_answer_with_calls() -> None:
    [choice] = whole(wish(tools=TOOLS), answer(CALL, "\n", CALL))["choices"]
    assert choice["message"]["content"] is None
    assert [call["id"] for call in choice["message"]["tool_calls"]] == ["call_7f_0_0", "call_7f_0_1"]
    assert choice["message"]["tool_calls"][1]["function"] == {"name": "time", "arguments": '{"at": 5}'}
    assert choice["finish_reason"] == "tool_calls"


def test_no_call_is_content_and_a_stop() -> None:
    [choice] = whole(wish(tools=TOOLS), answer("<tool_call>", "no", "</tool_call>"))["choices"]
    assert choice["message"]["content"] == "<tool_call>no</tool_call>"
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "stop"


def test_the_first_chunk_comes_with_the_first_token_even_if_its_text_is_held() -> None:
    [writer] = Scribe(wish(tools=TOOLS, stream=True), HEADING, "hermes").writers
    [chunk] = events(writer.piece(Deliver(text="<tool", token_ids=(1,), first=True)))
    assert chunk["choices"] == [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]
    assert writer.piece(Deliver(text="_call>", token_ids=(1,), first=False)) == b""


def test_a_call_that_was_cut_off_is_content_and_says_length() -> None:
    choices = streamed(wish(tools=TOOLS), answer("Hm ", CALL[:-20], reason="length"))
    assert "".join(choice["delta"].get("content") or "" for choice in choices) == f"Hm {CALL[:-20]}"
    assert choices[-1]["finish_reason"] == "length"


def test_a_forced_call_is_what_the_schema_made_of_the_answer() -> None:
    forced = wish(tools=Tools(offered="[]", forced="time"))
    [choice] = whole(forced, answer('{"at"', ": 5}"))["choices"]
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "time", "arguments": '{"at": 5}'}


pieces = st.lists(st.sampled_from([CALL, CALL[:9], CALL[9:], "\n", "a", "é", "", '{"x": 1}']), max_size=6)


@pytest.mark.parametrize("tells", [False, True])
@given(texts=pieces, reason=st.sampled_from(["stop", "length"]))
def test_a_stream_comes_to_the_same_as_the_whole(tells: bool, texts: list[str], reason: str) -> None:
    asked = wish(tools=TOOLS, sampling=LOGPROBS if tells else Sampling(seed=0))
    parts = answer(*texts, reason=reason, tells=tells)
    [entire] = whole(asked, parts)["choices"]
    choices = streamed(asked, parts)
    deltas = [choice["delta"] for choice in choices]
    assert [delta.get("role") for delta in deltas].count("assistant") == 1
    assert "".join(delta.get("content") or "" for delta in deltas) == (entire["message"]["content"] or "")
    calls: list[dict[str, Any]] = []
    for delta in deltas:
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                calls.append(call)
            else:
                calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
    for call in calls:
        del call["index"]
    assert calls == entire["message"].get("tool_calls", [])
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == [entire["finish_reason"]]
    if tells:
        told = [entry for choice in choices for entry in (choice["logprobs"] or {"content": []})["content"]]
        assert told == entire["logprobs"]["content"]


def test_log_probabilities_of_a_chat() -> None:
    [first, *_] = streamed(wish(sampling=LOGPROBS), answer("é", tells=True))
    assert first["logprobs"]["content"] == [
        {
            "token": "é",
            "logprob": -0.5,
            "bytes": [0xC3, 0xA9],
            "top_logprobs": [
                {"token": "é", "logprob": -0.5, "bytes": [0xC3, 0xA9]},
                {"token": "x", "logprob": -9_999.0, "bytes": [0x78]},
            ],
        }
    ]


def test_c77_a_part_of_a_character_is_told_by_its_bytes() -> None:
    half = Deliver(text="", token_ids=(1,), first=False, logprobs=(token(b"\xf0\x9f"),))
    rest = Deliver(text="😀", token_ids=(2,), first=False, logprobs=(token(b"\x98\x80"),))
    told = [choice["logprobs"]["content"][0] for choice in streamed(wish(sampling=LOGPROBS), [half, rest])]
    assert [entry["token"] for entry in told] == ["bytes:\\xf0\\x9f", "bytes:\\x98\\x80"]
    assert bytes(told[0]["bytes"] + told[1]["bytes"]).decode() == "😀"


def test_texts_go_on_from_their_prompt() -> None:
    asked = wish(is_text=True, echo=True, prompts=(Prompt(text="Once"), Prompt(text="Twice")), n=1)
    body = whole(asked, answer(" upon"), answer(" told"))
    assert [choice["text"] for choice in body["choices"]] == ["Once upon", "Twice told"]
    assert body["object"] == "text_completion"
    [*said, last] = streamed(wish(is_text=True, echo=True), answer(" upon", " a"))
    assert [choice["text"] for choice in said] == ["Once upon", " a"]
    assert (last["text"], last["finish_reason"]) == ("", "stop")


def test_log_probabilities_of_texts_are_columns() -> None:
    asked = wish(is_text=True, sampling=LOGPROBS)
    [choice] = whole(asked, answer("né", "e", tells=True))["choices"]
    assert choice["logprobs"] == {
        "tokens": ["né", "e"],
        "token_logprobs": [-0.5, -0.5],
        "top_logprobs": [{"né": -0.5, "x": -9_999.0}, {"e": -0.5, "x": -9_999.0}],
        "text_offset": [0, 2],
    }
    chunks = streamed(asked, answer("né", "e", tells=True))
    assert [(chunk["logprobs"] or {}).get("text_offset") for chunk in chunks] == [[0], [2], None]
