"""What must be told to the bus once a change is committed, as the outbox keeps it."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from shared.contracts.catalog import CHANNELS
from shared.contracts.channel import Channel, Kind
from shared.contracts.codec import decode, encode

M = TypeVar("M")

_BY_NAME = {channel.name: channel for channel in CHANNELS}


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A fact to publish, a key to put, or (without payload) a key to delete."""

    channel: str
    ids: tuple[str, ...] = ()
    payload: bytes | None = None


def fact(channel: Channel[M, Any], message: M) -> Note:
    return Note(channel=_named(channel, Kind.EVENT), payload=encode(channel, message))


def value(channel: Channel[M, Any], message: M, *ids: str) -> Note:
    return Note(channel=_named(channel, Kind.STATE), ids=ids, payload=encode(channel, message))


def removal(channel: Channel[Any, Any], *ids: str) -> Note:
    return Note(channel=_named(channel, Kind.STATE), ids=ids)


def channel_of(note: Note) -> Channel[Any, Any]:
    """Raises KeyError for a channel that this version of the catalog does not have."""
    return _BY_NAME[note.channel]


def message_of(note: Note) -> Any:
    """The message of a note that has one. Raises BadMessage."""
    return None if note.payload is None else decode(channel_of(note), note.payload)


def _named(channel: Channel[Any, Any], kind: Kind) -> str:
    if channel.kind is not kind:
        raise ValueError(f"channel {channel.name} is no {kind.value} channel")
    return channel.name
