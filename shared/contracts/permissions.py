"""Who may say and hear what: derived from the catalog, enforced by the bus and again by the NATS server."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

from shared.contracts.catalog import CHANNELS
from shared.contracts.channel import Channel, FanOut, Kind, Service
from shared.contracts.streams import (
    bucket_stream,
    buckets,
    consumer_name,
    durables,
    event_streams,
    key_prefix,
)

PASSING = (Kind.TELEMETRY, Kind.RPC, Kind.REPLY)
"""Kinds that go by: heard by whoever listens at that moment, and kept nowhere."""


def may_write(service: Service, channel: Channel[Any, Any]) -> bool:
    return service in channel.writers


def may_read(service: Service, channel: Channel[Any, Any]) -> bool:
    """A writer of desired state may read it back: compare-and-set needs the revision."""
    reads = any(reader.service is service for reader in channel.readers)
    return reads or (channel.kind is Kind.STATE and service in channel.writers)


def is_pooled(service: Service, channel: Channel[Any, Any]) -> bool:
    """Whether the processes of this service share the channel's messages."""
    return any(reader.service is service and reader.fan_out is FanOut.POOL for reader in channel.readers)


def require_writer(service: Service, channel: Channel[Any, Any]) -> None:
    """Raises PermissionError."""
    if not may_write(service, channel):
        raise PermissionError(f"{service.value} may not write on channel {channel.name}")


def require_reader(service: Service, channel: Channel[Any, Any]) -> None:
    """Raises PermissionError."""
    if not may_read(service, channel):
        raise PermissionError(f"{service.value} may not read channel {channel.name}")


def inbox_prefix(user: str) -> str:
    """Where the answers to this user's questions arrive; nobody else may listen there."""
    return f"_INBOX_{user}"


def require_kind(channel: Channel[Any, Any], *kinds: Kind) -> None:
    """Raises ValueError for a channel that does not travel this way."""
    if channel.kind not in kinds:
        raise ValueError(f"channel {channel.name} is of kind {channel.kind.value}: use another method of the bus")


@dataclass(frozen=True, kw_only=True)
class Grants:
    """Subjects of one user on the server. What is not allowed is denied; `deny` cuts holes into `publish`."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    deny: tuple[str, ...] = ()
    answers: bool = False
    """May answer a question once, wherever its asker wants the answer."""


def grants(service: Service, channels: tuple[Channel[Any, Any], ...] = CHANNELS) -> Grants:
    """Exactly what the channels need that this service writes and reads.

    One thing the server cannot restrict: who may create a consumer chooses where its messages go. A
    reader could have values it reads anyway delivered to a foreign subject, but not make any up.
    """
    written = [channel for channel in channels if may_write(service, channel)]
    read = [channel for channel in channels if may_read(service, channel)]
    names_durables = any(channel.kind is Kind.EVENT and not is_pooled(service, channel) for channel in read)
    publish = chain(map(_writing, written), (_reading(service, channel) for channel in read))
    live = (channel.wildcard for channel in read if channel.kind in PASSING)
    return Grants(
        publish=tuple(chain.from_iterable(publish)),
        subscribe=(f"{inbox_prefix(service.value)}.>", *live),
        deny=_foreign_durables(service, channels) if names_durables else (),
        answers=any(channel.kind is Kind.RPC and channel.reply is not None for channel in read),
    )


PROVISIONER = "provision"
"""The user that creates streams and buckets; no service has its rights."""


def provisioner_grants(channels: tuple[Channel[Any, Any], ...] = CHANNELS) -> Grants:
    names = [stream.name for stream in (*event_streams(channels), *buckets(channels))]
    return Grants(
        publish=tuple(f"$JS.API.STREAM.{verb}.{name}" for name in names for verb in ("INFO", "CREATE", "UPDATE")),
        subscribe=(f"{inbox_prefix(PROVISIONER)}.>",),
    )


def _writing(channel: Channel[Any, Any]) -> tuple[str, ...]:
    return (f"{key_prefix(channel)}>",) if channel.kind is Kind.STATE else (channel.wildcard,)


def _reading(service: Service, channel: Channel[Any, Any]) -> tuple[str, ...]:
    """What a reader has to publish: requests to JetStream and acknowledgements."""
    if channel.kind is Kind.STATE:
        stream, keys = bucket_stream(channel), f"{key_prefix(channel)}>"
        return (f"$JS.API.DIRECT.GET.{stream}.{keys}", f"$JS.API.CONSUMER.CREATE.{stream}.*.{keys}")
    if channel.kind is Kind.EVENT:
        pooled = is_pooled(service, channel)
        consumer = consumer_name(channel, service.value) if pooled else "*"
        return _consuming(channel.stream.value, consumer, channel.wildcard)
    return ()


def _consuming(stream: str, consumer: str, subject: str) -> tuple[str, ...]:
    """Creating names the subject, so the server can hold it against the filter that is asked for; of the older
    DURABLE.CREATE only the body would say what is read. INFO is how clients see whether a durable exists."""
    return (
        f"$JS.API.CONSUMER.CREATE.{stream}.{consumer}.{subject}",
        f"$JS.API.CONSUMER.INFO.{stream}.{consumer}",
        f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}",
        f"$JS.ACK.{stream}.{consumer}.>",
    )


def _foreign_durables(service: Service, channels: tuple[Channel[Any, Any], ...]) -> tuple[str, ...]:
    """Whoever chooses its durables' names freely must not choose one that another service shares."""
    foreign = [durable for durable in durables(channels) if durable.service is not service]
    return tuple(chain.from_iterable(_consuming(durable.stream, durable.name, ">") for durable in foreign))
