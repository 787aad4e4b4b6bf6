"""Bytes and back, by the channel's own type and codec."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from typing import Any, TypeVar

import msgspec

from shared.contracts.channel import Channel, Codec

M = TypeVar("M")
R = TypeVar("R")

_JSON = msgspec.json.Encoder()
_MSGPACK = msgspec.msgpack.Encoder()


class BadMessage(ValueError):
    """The bytes are not a message of this channel; the sentence names the channel and the field.

    `reason` is the decoder's part of the sentence alone, empty if no decoder was asked.
    """

    def __init__(self, sentence: str, reason: str = "") -> None:
        super().__init__(sentence)
        self.reason = reason


def encode(channel: Channel[M, R], message: M) -> bytes:
    return _encode(channel.codec, message)


def decode(channel: Channel[M, R], payload: bytes) -> M:
    """Raises BadMessage."""
    return _decode(channel.name, channel.codec, channel.message, payload)


def encode_reply(channel: Channel[M, R], reply: R) -> bytes:
    return _encode(channel.codec, reply)


def decode_reply(channel: Channel[M, R], payload: bytes) -> R:
    """Raises BadMessage."""
    if channel.reply is None:
        raise BadMessage(f"channel {channel.name} has no reply")
    return _decode(channel.name, channel.codec, channel.reply, payload)


def _encode(codec: Codec, message: object) -> bytes:
    return _JSON.encode(message) if codec is Codec.JSON else _MSGPACK.encode(message)


def _decode(name: str, codec: Codec, kind: type[M], payload: bytes) -> M:
    try:
        message: M = _decoder(codec, kind).decode(payload)  # type: ignore[arg-type]  # types are hashable
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadMessage(f"not a message of channel {name}: {error}", str(error)) from error
    return message


@cache
def _decoder(codec: Codec, kind: Hashable) -> Any:
    return msgspec.json.Decoder(kind) if codec is Codec.JSON else msgspec.msgpack.Decoder(kind)
