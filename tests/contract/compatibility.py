"""What one version of the contract may change without breaking a reader or a writer of the version before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect as types

from shared.contracts.catalog import CHANNELS
from shared.contracts.channel import Channel
from shared.contracts.shape import MessageShape, shape, spell, structs

GOLDEN = Path(__file__).parent / "golden" / "messages.json"
REGENERATE = "python -m tests.contract.regenerate"


class ChannelShape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    subject: str
    message: str
    codec: str
    reply: str | None = None


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    channels: dict[str, ChannelShape]
    messages: dict[str, MessageShape]


def current(channels: Iterable[Channel[Any, Any]] = CHANNELS) -> Contract:
    listed = list(channels)
    said = [kind for channel in listed for kind in (channel.message, channel.reply) if kind is not None]
    return Contract(
        channels={channel.name: _channel(channel) for channel in listed},
        messages={name: shape(struct) for name, struct in structs(said).items()},
    )


def _channel(channel: Channel[Any, Any]) -> ChannelShape:
    return ChannelShape(
        subject=channel.subject(*(f"{{{param}}}" for param in channel.params)),
        message=spell(types.type_info(channel.message)),
        reply=spell(types.type_info(channel.reply)) if channel.reply is not None else None,
        codec=channel.codec.value,
    )


def read_golden() -> Contract:
    return msgspec.json.decode(GOLDEN.read_bytes(), type=Contract)


def write_golden(contract: Contract) -> None:
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_bytes(msgspec.json.format(msgspec.json.encode(contract), indent=1) + b"\n")


def breaks(before: Contract, after: Contract) -> list[str]:
    """Every change that an old reader or an old writer would trip over, one sentence each."""
    return [*_channel_breaks(before.channels, after.channels), *_message_breaks(before.messages, after.messages)]


def _channel_breaks(before: Mapping[str, ChannelShape], after: Mapping[str, ChannelShape]) -> Iterator[str]:
    for name, old in before.items():
        if name not in after:
            yield f"channel {name} is gone"
        elif after[name] != old:
            yield f"channel {name} changed from {old} to {after[name]}"


def _message_breaks(before: Mapping[str, MessageShape], after: Mapping[str, MessageShape]) -> Iterator[str]:
    for name, old in before.items():
        if name not in after:
            yield f"message {name} is gone"
            continue
        new = after[name]
        if (old.tag, old.array) != (new.tag, new.array):
            yield f"{name} is encoded in another way"
        if new.closed and not old.closed:
            yield f"{name} refuses unknown fields now"
        yield from _field_breaks(name, old, new)


def _field_breaks(name: str, old: MessageShape, new: MessageShape) -> Iterator[str]:
    fields, known = {field.name: field for field in new.fields}, {field.name: field for field in old.fields}
    for field in old.fields:
        if field.name not in fields:
            yield f"{name}.{field.name} is gone (a rename counts as that)"
        elif fields[field.name] != field:
            yield f"{name}.{field.name} changed its type or its default"
    for field in new.fields:
        if field.name not in known and field.required:
            yield f"{name}.{field.name} is new and has no default"
    kept = [field.name for field in new.fields[: len(old.fields)]]
    if new.array and kept != [field.name for field in old.fields]:
        yield f"{name} is an array: new fields go to its end"
