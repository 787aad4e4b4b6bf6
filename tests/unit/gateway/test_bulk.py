"""What a body holds is counted before it is made, and what its texts say is no part of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.gateway.core.openai import bulk
from services.gateway.core.openai.bodies import PARSERS
from services.gateway.core.refusal import Refusal
from services.gateway.core.wish import Wish

_TEXTS = st.text('a,"\\\\[{\\n\u00e9', max_size=6)
_VALUES = st.recursive(
    st.none() | st.integers() | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=12,
)


def weight_of(value: Any) -> int:
    if isinstance(value, str):
        return bulk.MADE
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
}


@pytest.mark.parametrize("path", PARSERS)
@pytest.mark.parametrize("value", TOO_MUCH.values(), ids=TOO_MUCH.keys())
def test_c81_a_body_that_holds_too_much_is_not_decoded(
    value: bytes, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(msgspec.json, "decode")
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
