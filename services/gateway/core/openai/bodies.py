"""Who reads the body of what is posted where."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from services.gateway.core.openai import bulk, chats, texts
from services.gateway.core.refusal import Refusal
from services.gateway.core.wish import Wish

Parse = Callable[[bytes], Wish | Refusal]


def _unless_too_much(parse: Parse) -> Parse:
    def read(body: bytes) -> Wish | Refusal:
        return bulk.excess(body) or parse(body)

    return read


PARSERS: Mapping[str, Parse] = {
    "/v1/chat/completions": _unless_too_much(chats.parse),
    "/v1/completions": _unless_too_much(texts.parse),
}
