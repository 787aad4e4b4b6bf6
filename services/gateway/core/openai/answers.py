"""Whole answers and streams of them, as OpenAI's clients read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from services.gateway.core.completion import DONE, ChunkWriter, Heading, total_usage, usage_event, usage_fields
from services.gateway.core.openai.chat_answer import Calls, RichWriter, chat_choice
from services.gateway.core.openai.text_answer import KIND, TextWriter, text_choice
from services.gateway.core.stream import Deliver
from services.gateway.core.tool_calls import PARSERS, ForcedCall
from services.gateway.core.wish import Wish
from shared.messages.generation import Usage


class Writer(Protocol):
    def piece(self, piece: Deliver) -> bytes:
        """The events of one piece of one answer; b"" if there is nothing to say yet."""


class Scribe:
    """Writes down the answers to one wish. Of a stream `writers` has one for each answer, from its first piece to its
    last. `tool_parser` is the base's way to write calls."""

    def __init__(self, wish: Wish, heading: Heading, tool_parser: str) -> None:
        self._wish = wish
        self._heading = heading
        self._tool_parser = tool_parser
        self._tells = wish.sampling.top_logprobs is not None
        self.writers = tuple(self._writer(index) for index in range(wish.choices)) if wish.stream else ()

    def ending(self, usages: Sequence[Usage]) -> bytes:
        """What follows when all answers are over, each of which came to its usage."""
        if not self._wish.include_usage:
            return DONE
        kind = KIND if self._wish.is_text else "chat.completion.chunk"
        return usage_event(self._heading, kind, total_usage(usages, self._wish.n)) + DONE

    def whole(self, answers: Sequence[Sequence[Deliver]]) -> bytes:
        """All answers in one body. Each ends with a finish."""
        usages = [finish.usage for pieces in answers if (finish := pieces[-1].finish) is not None]
        assert len(usages) == self._wish.choices, "every answer is over"
        body = {
            "id": self._heading.completion_id,
            "object": KIND if self._wish.is_text else "chat.completion",
            "created": self._heading.created_s,
            "model": self._heading.model,
            "choices": [self._choice(index, pieces) for index, pieces in enumerate(answers)],
            "usage": usage_fields(total_usage(usages, self._wish.n)),
        }
        return msgspec.json.encode(body)

    def _choice(self, index: int, pieces: Sequence[Deliver]) -> dict[str, Any]:
        if self._wish.is_text:
            return text_choice(index, self._echoed(index), pieces, tells=self._tells)
        return chat_choice(index, pieces, self._calls(index), tells=self._tells)

    def _writer(self, index: int) -> Writer:
        if self._wish.is_text:
            return TextWriter(self._heading, index, self._echoed(index), tells=self._tells)
        calls = self._calls(index)
        if calls is None and not self._tells:
            return ChunkWriter(self._heading, index)
        return RichWriter(self._heading, index, calls, tells=self._tells)

    def _echoed(self, index: int) -> str:
        return self._wish.prompts[index // self._wish.n].text or "" if self._wish.echo else ""

    def _calls(self, index: int) -> Calls | None:
        if (tools := self._wish.tools) is None:
            return None
        parser = PARSERS[self._tool_parser]() if tools.forced is None else ForcedCall(tools.forced)
        return Calls(parser, f"call_{self._heading.completion_id.partition('-')[2]}_{index}_")
