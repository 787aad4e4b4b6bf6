"""What a body holds is counted before it is made, and what its texts say is no part of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.gateway.core import fields
from services.gateway.core.openai import bulk, plain_chats
from services.gateway.core.openai.bodies import PARSERS
from services.gateway.core.refusal import Refusal
from services.gateway.core.wish import Wish

_TEXTS = st.text('a,"\\\\[{\\n\u00e9', max_size=6)
_VALUES = st.recursive(
    st.none() | st.integers() | st.booleans() | st.sampled_from([0.5, 1e300, -2.5e-30]) | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=12,
)


def weight_of(value: Any) -> int:
    if isinstance(value, str):
        return bulk.MADE
    if isinstance(value, bool | float):
        return bulk.MADE * sum(msgspec.json.encode(value).count(mark) for mark in (b".", b"e"))
    if not isinstance(value, list | dict):
        return 0
    parts = value if isinstance(value, list) else [*value, *value.values()]
    return bulk.MADE + max(0, len(value) - 1) + sum(map(weight_of, parts))


@given(_VALUES)
@example({'\\"': ["\\\\", '\\\\"', ",", {}, []]})
def test_everything_is_counted_but_what_texts_say(value: Any) -> None:
    body = msgspec.json.encode(value)
    assert bulk.weight(body) == weight_of(value)
    assert bulk.weight(body) <= bulk.MOST * len(body) / bulk.LITTLE_BYTES, "a little is never too much"


TOO_MUCH = {
    "numbers": b"[" + b"1," * (bulk.MOST + 1) + b"1]",
    "lists": b"[" + b"[]," * 250_000 + b"1]",
    "lists in lists": b"[" + (b"[" * 500 + b"]" * 500 + b",") * 600 + b"1]",
    "texts": b"[" + b'"",' * 250_000 + b"1]",
    "names": b"{" + b",".join(b'"%d":0' % at for at in range(260_000)) + b"}",
    "fractions": b"[" + b"0.5," * 170_000 + b"1]",
    "powers of ten": b"[" + b"1e300," * 170_000 + b"1]",
    "powers in capitals": b"[" + b"1E9," * 170_000 + b"1]",
    "a long number": b"[" + b"1," * bulk.LITTLE_BYTES + b"1" * 2 * bulk.LONG_DIGITS + b"]",
}


@pytest.mark.parametrize("path", PARSERS)
@pytest.mark.parametrize("value", TOO_MUCH.values(), ids=TOO_MUCH.keys())
def test_c81_a_body_that_holds_too_much_is_not_decoded(
    value: bytes, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(fields, "json_value")
    refusal = PARSERS[path](b'{"model":"m","else":' + value + b"}")
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.code, refusal.heals) == (413, "request_too_large", False)


def test_long_texts_and_many_token_ids_are_not_too_much() -> None:
    """The longest that a body may be, with all in it that is counted outside of texts."""
    said = 'a,"[{\\' * 900_000
    chat = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": said}]})
    texts = msgspec.json.encode({"model": "m", "prompt": [[12_345] * 21_000] * 64})
    assert len(chat) > 7_000_000
    assert len(texts) > 8_000_000
    assert isinstance(PARSERS["/v1/chat/completions"](chat), Wish)
    assert isinstance(PARSERS["/v1/completions"](texts), Wish)


def test_long_texts_with_all_that_may_shape_an_answer_are_not_too_much() -> None:
    bias = {str(token_id): -99.5 for token_id in range(1_000)}
    properties = {f"field{at}": {"type": "number", "minimum": 0.5, "maximum": 1e300} for at in range(10)}
    function = {"description": "d" * 200, "parameters": {"type": "object", "properties": properties}}
    tools = [{"type": "function", "function": {"name": f"f{at}", **function}} for at in range(100)]
    chat = {"model": "m", "messages": [{"role": "user", "content": "x" * 900_000}], "logit_bias": bias, "tools": tools}
    assert len(msgspec.json.encode(tools)) > 80_000
    assert isinstance(PARSERS["/v1/chat/completions"](msgspec.json.encode(chat)), Wish)


@pytest.mark.parametrize("count", [0, 1, 2 * bulk.LONG_DIGITS - 1])
def test_numbers_of_some_digits_are_not_too_long(count: int) -> None:
    """Where they stand makes no difference."""
    said = b" " * bulk.LITTLE_BYTES + b"1" * (bulk.LONG_DIGITS - 1) + b" " * count
    assert bulk.excess(said) is None


@pytest.mark.parametrize("shift", range(0, bulk.LONG_DIGITS, 73))
def test_a_long_number_is_found_wherever_it_begins(shift: int) -> None:
    said = b" " * (bulk.LITTLE_BYTES + shift) + b"1" * 2 * bulk.LONG_DIGITS
    assert isinstance(bulk.excess(said), Refusal)


def test_no_fraction_is_read_in_msgspecs_own_way() -> None:
    read: list[Any] = []
    body = b'{"a":1e300,"b":[9007199254740993.00000000000000000001,-1.5E-3],"c":1}'
    assert fields.read_body(body, lambda given: read.extend(given.values())) is None
    assert read == [1e300, [9007199254740994.0, -0.0015], 1]


def test_a_number_out_of_range_is_no_json() -> None:
    refusal = PARSERS["/v1/completions"](b'{"model":"m","prompt":"x","else":1e999}')
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.code) == (400, "invalid_json")
    assert "Number out of range" in refusal.message


def test_a_large_body_is_not_read_by_its_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field may stand in it thousands of times, and be read each time."""
    many = b'"temperature":0.7,' * 4_000
    body = b'{%b"model":"m","messages":[{"role":"user","content":"x"}]}' % many
    assert len(body) > plain_chats.LARGEST_BYTES
    assert plain_chats.read(body) is None
    assert isinstance(PARSERS["/v1/chat/completions"](body), Wish)
