"""The body of `POST /v1/chat/completions`, read and checked: what it means, or the first thing wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from services.gateway.core.fields import Defect, flag, integer, read_body, refuse_all_but, required
from services.gateway.core.openai import plain_chats
from services.gateway.core.openai.formats import read_format, schema_text
from services.gateway.core.openai.messages import read_messages
from services.gateway.core.openai.sampling import read_max_tokens, read_sampling, read_shared
from services.gateway.core.openai.tools import Wanted, read_tools
from services.gateway.core.refusal import Refusal
from services.gateway.core.wish import LENGTH, NEWER_LENGTH, Prompt, Wish
from shared.messages.generation import Sampling

MOST_TOP_LOGPROBS = 20

NOT_SERVED: Mapping[str, tuple[Any, ...]] = {
    "audio": (),
    "function_call": ("none",),
    "functions": ([],),
    "modalities": (["text"],),
    "web_search_options": (),
}
"""Parameters that would change the answer, each with the values (besides null) that ask for nothing special."""


def parse(body: bytes) -> Wish | Refusal:
    """Fields that nobody knows, and those that only name a cache, are ignored."""
    return plain_chats.read(body) or parse_any(body)


def parse_any(body: bytes) -> Wish | Refusal:
    """The same field by field: of bodies that ask for more, and to say what is wrong with one."""
    return read_body(body, _read)


def _read(fields: dict[str, Any]) -> Wish:
    shared = read_shared(fields)
    messages = read_messages(required(fields, "messages"))
    refuse_all_but(NOT_SERVED, fields)
    wanted = read_tools(fields)
    return msgspec.structs.replace(
        shared, prompts=(Prompt(messages=messages),), sampling=_sampling(fields, wanted), tools=wanted.tools,
        length_field=_length_field(fields),
    )  # fmt: skip


def _length_field(fields: dict[str, Any]) -> str:
    """The newer name for what the answer may come to goes before the older one."""
    return NEWER_LENGTH if NEWER_LENGTH in fields else LENGTH


def _sampling(fields: dict[str, Any], wanted: Wanted) -> Sampling:
    plain = read_sampling(fields, read_max_tokens(fields, _length_field(fields)))
    schema, top = read_format(fields.get("response_format")), _top_logprobs(fields)
    if schema and wanted.tools is not None:
        message = "`response_format` and `tools` cannot both shape one answer: leave one out."
        raise Defect(message, "response_format", "unsupported_parameter")
    if wanted.schema is not None:
        schema = schema_text(wanted.schema, "tools")
    if not schema and top is None:
        return plain
    return msgspec.structs.replace(plain, json_schema=schema, top_logprobs=top)


def _top_logprobs(fields: dict[str, Any]) -> int | None:
    top = integer(fields, "top_logprobs", 0, MOST_TOP_LOGPROBS)
    if flag(fields, "logprobs", "logprobs"):
        return top or 0
    if top:
        raise Defect("`top_logprobs` is only allowed when `logprobs` is true.", "top_logprobs", "invalid_value")
    return None
