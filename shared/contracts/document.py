"""Writes `docs/contract/` from the catalog: a page for people, AsyncAPI for programs. `make contract-docs`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import inspect as types

from shared.contracts.asyncapi import documents
from shared.contracts.catalog import CHANNELS
from shared.contracts.channel import Channel, FanOut, Kind, Reader
from shared.contracts.shape import FieldShape, MessageShape, shape, spell, structs

PAGE = Path("docs/contract/channels.md")
ASYNCAPI = Path("docs/contract/asyncapi")

_PROMISES = {
    Kind.EVENT: ("Facts", "At least once, replayable; a repeated message id is stored once."),
    Kind.STATE: ("Desired state", "The last value of a key wins; watched; compare-and-set by revision."),
    Kind.TELEMETRY: ("Snapshots", "At most once; the next one heals a loss."),
    Kind.RPC: ("Questions", "Answered, or failed by a deadline."),
    Kind.REPLY: ("Replies to one gateway", "At most once; what must not be lost is numbered."),
}
_FAN_OUT = {FanOut.POOL: "one of", FanOut.EACH: "each", FanOut.OWNER: "the one named"}

_HEAD = """\
# What the services say to each other

Generated from `shared/contracts/catalog.py` by `make contract-docs`; do not edit by hand. Fields are only ever
added, with a default: `tests/contract/` refuses anything else.
"""


def page(channels: Iterable[Channel[Any, Any]] = CHANNELS) -> str:
    """The whole page, in Markdown."""
    listed = list(channels)
    kinds = [part for kind in Kind for part in _kind(kind, [one for one in listed if one.kind is kind])]
    said = [kind for channel in listed for kind in (channel.message, channel.reply) if kind is not None]
    messages = [part for name, struct in structs(said).items() for part in _message(name, struct)]
    return "\n".join([_HEAD, *kinds, "## Messages\n", *messages]).rstrip() + "\n"


def _kind(kind: Kind, channels: list[Channel[Any, Any]]) -> Iterator[str]:
    if channels:
        title, promise = _PROMISES[kind]
        yield f"## {title}\n\n{promise}\n"
        head = ("channel", "where", "writers", "readers", "message", "codec", "what it says")
        yield _table(head, [_row(channel) for channel in channels])


def _row(channel: Channel[Any, Any]) -> tuple[str, ...]:
    return (
        channel.name,
        _where(channel),
        ", ".join(writer.value for writer in channel.writers),
        ", ".join(_reader(reader) for reader in channel.readers),
        _said(channel),
        channel.codec.value,
        channel.summary + (f" Message id: {channel.dedup}." if channel.dedup else ""),
    )


def _where(channel: Channel[Any, Any]) -> str:
    ids = [f"{{{param}}}" for param in channel.params]
    if channel.kind is Kind.STATE:
        return f"bucket `{channel.bucket}`, key `{'.'.join(ids)}`"
    kept = f", stream `{channel.stream.value}`" if channel.kind is Kind.EVENT else ""
    return f"`{channel.subject(*ids)}`{kept}"


def _reader(reader: Reader) -> str:
    return f"{_FAN_OUT[reader.fan_out]} {reader.service.value}"


def _said(channel: Channel[Any, Any]) -> str:
    asked = _links(channel.message)
    return f"{asked} → {_links(channel.reply)}" if channel.reply is not None else asked


def _links(kind: Any) -> str:
    return " or ".join(f"[{name}](#{name.lower()})" for name in spell(types.type_info(kind)).split(" or "))


def _message(name: str, struct: types.StructType) -> Iterator[str]:
    looks = shape(struct)
    yield f"### {name}\n"
    notes = [*_summary(struct), *_encoding(looks)]
    if notes:
        yield "\n\n".join(notes) + "\n"
    rows = [(f"`{field.name}`", field.type, _default(field)) for field in looks.fields]
    yield _table(("field", "type", "default"), rows) if rows else "No fields.\n"


def _summary(struct: types.StructType) -> list[str]:
    written = struct.cls.__dict__.get("__doc__") or ""
    return [inspect.cleandoc(written)] if written else []


def _encoding(looks: MessageShape) -> Iterator[str]:
    if looks.tag:
        yield f'In its union it is named by `"type": "{looks.tag}"`.'
    if looks.array:
        yield "Encoded as an array, in this order."
    if looks.closed:
        yield "Unknown fields are refused."


def _default(field: FieldShape) -> str:
    return "required" if field.required else f"`{json.dumps(field.default)}`"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def files() -> dict[Path, str]:
    """What belongs below `docs/contract/`, by path."""
    services = {ASYNCAPI / f"{name}.json": json.dumps(node, indent=2) + "\n" for name, node in documents().items()}
    return {PAGE: page(), **services}


def main() -> None:
    ASYNCAPI.mkdir(parents=True, exist_ok=True)
    for path, text in files().items():
        path.write_text(text)
    print(f"wrote {PAGE} and {ASYNCAPI}/")


if __name__ == "__main__":
    main()
