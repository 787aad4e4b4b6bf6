"""Who reads the body of what is posted where."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from services.gateway.core.openai import chats, texts
from services.gateway.core.refusal import Refusal
from services.gateway.core.wish import Wish

Parse = Callable[[bytes], Wish | Refusal]

PARSERS: Mapping[str, Parse] = {"/v1/chat/completions": chats.parse, "/v1/completions": texts.parse}
