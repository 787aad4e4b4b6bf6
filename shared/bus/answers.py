"""What travels back from a served question: bytes, or the failure in words."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from shared.bus.calls import bounded
from shared.bus.port import AskFailed, Ids
from shared.contracts.channel import Channel
from shared.contracts.codec import BadMessage, decode, decode_reply, encode_reply

M = TypeVar("M")
R = TypeVar("R")

_LONGEST_FAILURE = 4000

_log = logging.getLogger(__name__)


async def answer_to(
    channel: Channel[M, R], on_ask: Callable[[M, Ids], Awaitable[R]], payload: bytes, ids: Ids
) -> bytes | str:
    """The encoded answer, or the sentence that the asker gets as AskFailed."""
    try:
        return bounded(encode_reply(channel, await on_ask(decode(channel, payload), ids)))
    except BadMessage as error:
        _log.error("refused a question: %s", error)
        return _sentence(error)
    except Exception as error:
        _log.exception("answering %s failed", channel.name)
        return _sentence(error)


def answer_of(channel: Channel[M, R], answer: bytes | str) -> R:
    """Raises AskFailed."""
    if isinstance(answer, str):
        raise AskFailed(answer)
    try:
        return decode_reply(channel, answer)
    except BadMessage as error:
        raise AskFailed(str(error)) from error


def _sentence(error: Exception) -> str:
    """On one line and not too long: it travels in a header."""
    return " ".join(str(error).split())[:_LONGEST_FAILURE] or type(error).__name__
