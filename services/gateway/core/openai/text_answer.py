"""One answer of `/v1/completions`: text that goes on from its prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from services.gateway.core.completion import Heading
from services.gateway.core.openai.logprobs import TextLogprobs
from services.gateway.core.stream import Deliver

KIND = "text_completion"

_encode = msgspec.json.encode


class TextWriter:
    """A template around each token's text. The first comes after `echoed`. `tells`: log probabilities go with it."""

    def __init__(self, heading: Heading, index: int, echoed: str, *, tells: bool) -> None:
        self._start = heading.event_start(KIND) + b'{"index":%d,"text":' % index
        self._echoed = echoed
        self._logprobs = TextLogprobs() if tells else None

    def piece(self, piece: Deliver) -> bytes:
        if not piece.text and not piece.first and piece.finish is None and not piece.logprobs:
            return b""
        text = self._echoed + piece.text if piece.first else piece.text
        told = None
        if self._logprobs is not None and piece.logprobs:
            told = self._logprobs.put(piece.logprobs)
        reason = piece.finish.reason if piece.finish is not None else None
        return b'%b%b,"logprobs":%b,"finish_reason":%b}]}\n\n' % (
            self._start, _encode(text), _encode(told), _encode(reason),
        )  # fmt: skip


def text_choice(index: int, echoed: str, pieces: Sequence[Deliver], *, tells: bool) -> dict[str, Any]:
    """The same as one value."""
    finish = pieces[-1].finish
    return {
        "index": index,
        "text": echoed + "".join(piece.text for piece in pieces),
        "logprobs": TextLogprobs().put([token for piece in pieces for token in piece.logprobs]) if tells else None,
        "finish_reason": finish.reason if finish is not None else None,
    }
