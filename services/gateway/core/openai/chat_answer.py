"""One answer of a chat that tells more than text: calls of functions, log probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from services.gateway.core.completion import Heading
from services.gateway.core.openai.logprobs import chat_logprobs
from services.gateway.core.stream import Deliver
from services.gateway.core.tool_calls import Call, CallParser, Part
from shared.messages.generation import Finish, TokenLogprob

_encode = msgspec.json.encode


class Calls:
    """The calls of one answer. Their ids are `ids` and a number."""

    def __init__(self, parser: CallParser, ids: str) -> None:
        self._parser = parser
        self._ids = ids
        self._count = 0

    def push(self, text: str, *, last: bool) -> list[Part]:
        return self._parser.push(text) + (self._parser.flush() if last else [])

    def named(self, call: Call) -> tuple[int, dict[str, Any]]:
        """Its index and its beginning."""
        index, self._count = self._count, self._count + 1
        function = {"name": call.name, "arguments": ""}
        return index, {"id": f"{self._ids}{index}", "type": "function", "function": function}

    def ending(self, finish: Finish) -> str:
        """An answer that was cut off is that before all."""
        return "tool_calls" if self._count and finish.reason == "stop" else finish.reason


class RichWriter:
    """Without `calls` all text is text. `tells`: log probabilities go with it."""

    def __init__(self, heading: Heading, index: int, calls: Calls | None, *, tells: bool) -> None:
        self._start = heading.event_start("chat.completion.chunk")
        self._index = index
        self._calls = calls
        self._tells = tells

    def piece(self, piece: Deliver) -> bytes:
        deltas = self._deltas(piece)
        if not deltas and (piece.first or piece.logprobs):
            deltas = [{"content": ""}]
        if piece.first:
            deltas[0] = {"role": "assistant", **deltas[0]}
        if piece.finish is not None and (not deltas or "tool_calls" in deltas[-1]):
            deltas.append({})
        last = len(deltas) - 1
        return b"".join(
            self._event(delta, piece.logprobs if at == 0 else (), piece.finish if at == last else None)
            for at, delta in enumerate(deltas)
        )

    def _deltas(self, piece: Deliver) -> list[dict[str, Any]]:
        if self._calls is None:
            return [{"content": piece.text}] if piece.text else []
        deltas: list[dict[str, Any]] = []
        for part in self._calls.push(piece.text, last=piece.finish is not None):
            if isinstance(part, Call):
                index, begun = self._calls.named(part)
                deltas.append({"tool_calls": [{"index": index, **begun}]})
                deltas.append({"tool_calls": [{"index": index, "function": {"arguments": part.arguments}}]})
            else:
                deltas.append({"content": part})
        return deltas

    def _event(self, delta: dict[str, Any], logprobs: Sequence[TokenLogprob], finish: Finish | None) -> bytes:
        choice = {"index": self._index, "delta": delta, "finish_reason": _reason(finish, self._calls)}
        if self._tells:
            choice["logprobs"] = _logprobs(logprobs) if logprobs else None
        return self._start + _encode(choice) + b"]}\n\n"


def chat_choice(index: int, pieces: Sequence[Deliver], calls: Calls | None, *, tells: bool) -> dict[str, Any]:
    """The same as one value. Content is null where there is nothing but calls."""
    said = "".join(piece.text for piece in pieces)
    message: dict[str, Any] = {"role": "assistant", "content": said, "refusal": None}
    if calls is not None:
        parts = calls.push(said, last=True)
        content = "".join(part for part in parts if isinstance(part, str))
        if called := [_call(part, calls) for part in parts if isinstance(part, Call)]:
            message |= {"content": content or None, "tool_calls": called}
        else:
            message["content"] = content
    return {
        "index": index,
        "message": message,
        "logprobs": _logprobs([token for piece in pieces for token in piece.logprobs]) if tells else None,
        "finish_reason": _reason(pieces[-1].finish, calls),
    }


def _call(call: Call, calls: Calls) -> dict[str, Any]:
    _, begun = calls.named(call)
    return {**begun, "function": {"name": call.name, "arguments": call.arguments}}


def _reason(finish: Finish | None, calls: Calls | None) -> str | None:
    if finish is None or calls is None:
        return finish.reason if finish is not None else None
    return calls.ending(finish)


def _logprobs(tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
    return {"content": chat_logprobs(tokens), "refusal": None}
