"""Calls in a model's text: the same ones however the text is cut, and nothing of it lost."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.core.tool_calls import PARSERS, Call, CallParser, ForcedCall, Part

HERMES = '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>'
WEATHER = Call("weather", '{"city": "Köln"}')
TIME = Call("time", "{}")

_MARKS = ("<tool_call>", "</tool_call>", "<|python_tag|>", "<tool", "<", "{", "}", '"', "\\", ";", "\n", " ", "é", "😀")
_BODIES = (
    '{"name": "weather", "arguments": {"city": "Köln"}}', '{"name": "time", "parameters": {}}', "{", "no call",
    '{"name": 5}',
    '{"name": "x", "arguments": {"q": "</tool_call> \\" <tool_call>"}}', '{"arguments": {}, "name": "y"}',
)  # fmt: skip
texts = st.lists(st.sampled_from([*_MARKS, *_BODIES, HERMES]) | st.text(max_size=3), max_size=8).map("".join)


def parsed(parser: CallParser, *pieces: str) -> list[Part]:
    """Adjacent texts joined."""
    joined: list[Part] = []
    for part in [part for piece in pieces for part in parser.push(piece)] + parser.flush():
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return joined


def hermes(*pieces: str) -> list[Part]:
    return parsed(PARSERS["hermes"](), *pieces)


def llama(*pieces: str) -> list[Part]:
    return parsed(PARSERS["llama3_json"](), *pieces)


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


@pytest.mark.parametrize("name", sorted(PARSERS))
@given(text=texts, cuts=st.lists(st.integers(0, 10_000), max_size=12))
def test_any_cut_of_a_text_gives_the_same(name: str, text: str, cuts: list[int]) -> None:
    assert parsed(PARSERS[name](), *pieces_of(text, cuts)) == parsed(PARSERS[name](), text) == parsed(
        PARSERS[name](), *text
    )  # fmt: skip


@pytest.mark.parametrize("name", sorted(PARSERS))
@given(text=texts)
def test_what_is_no_call_is_text_character_by_character(name: str, text: str) -> None:
    parts = parsed(PARSERS[name](), text)
    if not any(isinstance(part, Call) for part in parts):
        assert "".join(map(str, parts)) == text
    position = 0
    for part in parts:
        found = part if isinstance(part, str) else part.arguments
        position = text.find(found, position)
        assert position >= 0, "out of order, or changed"
        position += len(found)


@given(texts)
def test_arguments_are_always_an_object(text: str) -> None:
    for part in [*hermes(text), *llama(text)]:
        if isinstance(part, Call):
            assert isinstance(json.loads(part.arguments), dict)
            assert part.name


def test_a_call_alone() -> None:
    assert hermes(HERMES) == [WEATHER]
    assert hermes(f"\n\n{HERMES}\n") == [WEATHER]


def test_a_call_after_some_words() -> None:
    assert hermes(f"Let me look.\n{HERMES}") == ["Let me look.", WEATHER]


def test_several_calls() -> None:
    other = '<tool_call>{"name":"time","arguments":{}}</tool_call>'
    assert hermes(f"{HERMES}\n{other}") == [WEATHER, TIME]
    assert hermes(f"{HERMES} and {other} then") == [WEATHER, " and", TIME, " then"]


def test_words_are_passed_on_at_once_and_what_may_be_a_call_is_held() -> None:
    parser = PARSERS["hermes"]()
    assert parser.push("a < b") == ["a < b"]
    assert parser.push(" <tool") == []
    assert parser.push("box>") == [" <toolbox>"]
    assert parser.push("<tool_call>") == []
    assert parser.push('{"name": "time", "arguments": {}}') == []
    assert parser.push("</tool_call>") == [TIME]
    assert parser.push("\n") == []
    assert parser.push("x") == ["\nx"]


@pytest.mark.parametrize(
    "body",
    [
        "", "time", "{", '{"name": "time"}', '{"arguments": {}}', '{"name": "", "arguments": {}}', '["time"]',
        '{"name": 5, "arguments": {}}', '{"name": "time", "arguments": 5}', '{"name": "time", "arguments": "x"}',
        '{"name": "time", "arguments": {}} or so', "{'name': 'time', 'arguments': {}}", "[" * 100_000,
    ],
    ids=lambda body: body[:20],
)  # fmt: skip
def test_a_malformed_call_is_text(body: str) -> None:
    text = f"So: <tool_call>{body}</tool_call> Done."
    assert hermes(text) == [text]
    assert hermes(f"{text}{HERMES}") == [text, WEATHER]


def test_marks_within_a_string_are_text() -> None:
    arguments = {"q": 'a </tool_call> "quoted" <tool_call> \\'}
    body = json.dumps({"name": "find", "arguments": arguments})
    assert hermes(f"<tool_call>{body}</tool_call>") == [Call("find", json.dumps(arguments))]


def test_a_call_needs_no_end_where_the_text_ends_or_another_begins() -> None:
    open_call = '<tool_call>{"name": "time", "arguments": {}}'
    assert hermes(open_call) == [TIME]
    assert hermes(open_call, "\n", HERMES) == [TIME, WEATHER]


def test_a_call_that_was_cut_off_is_text() -> None:
    cut = HERMES[:40]
    assert hermes("See: ", cut) == [f"See: {cut}"]


def test_arguments_may_be_a_string_that_holds_them() -> None:
    assert hermes('<tool_call>{"name": "time", "arguments": "{\\"at\\": 5}"}</tool_call>') == [
        Call("time", '{"at": 5}')
    ]


def test_llama_writes_nothing_but_calls() -> None:
    one = '{"name": "weather", "parameters": {"city": "Köln"}}'
    assert llama(one) == llama(f"<|python_tag|>{one}") == llama(f"\n {one} ") == [WEATHER]
    assert llama(f'{one}; {{"name": "time", "parameters": {{}}}}') == [WEATHER, TIME]
    quoted = '{"name": "find", "parameters": {"q": "a; b"}}'
    assert llama(quoted) == [Call("find", '{"q": "a; b"}')]


@pytest.mark.parametrize(
    "text",
    [
        "Hello", " {", '{"a": 5}', "<|python", "<|python_tag|>print(1)", '{"name": "x", "parameters": {}};',
        '{"name": "x", "parameters": {}} hello', 'Call {"name": "x", "parameters": {}}', "",
        '{"name": "x", "parameters": "' + ";" * 100_000,
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_any_other_answer_of_llama_is_text(text: str) -> None:
    assert "".join(map(str, llama(text))) == text


def test_llamas_words_are_passed_on_at_once() -> None:
    parser = PARSERS["llama3_json"]()
    assert parser.push("<|py") == []
    assert parser.push("x") == ["<|pyx"]
    assert parser.push(' {"name"') == [' {"name"']


def test_a_forced_call_is_the_whole_answer() -> None:
    assert parsed(ForcedCall("time"), '{"at"', ": 5}\n") == [Call("time", '{"at": 5}')]
    assert parsed(ForcedCall(""), '{"name": "time", "arguments": {}}') == [TIME]
    for cut in ('{"at"', "5", ""):
        assert "".join(map(str, parsed(ForcedCall("time"), cut))) == cut
        assert "".join(map(str, parsed(ForcedCall(""), cut))) == cut
