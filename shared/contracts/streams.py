"""What the bus keeps on disk: streams of facts, one bucket per kind of desired state, the shared durables.

Pure values, derived from the catalog; `infra.nats.provision` makes a server agree with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shared.contracts.catalog import CHANNELS
from shared.contracts.channel import Channel, FanOut, Kind, Service, Stream

MAX_MESSAGE_BYTES = 1_000_000
"""Of one encoded message. The server's limit is a little higher: it counts headers too."""

SERVER_PAYLOAD_BYTES = 1 << 20

USAGE_BYTES = 2 << 30
"""How much usage is kept for a registry that is away, before the oldest goes (docs/operating.md says how long that
is). The server sets so much of its disk apart at once."""

USAGE_LEAST_BYTES = 64 << 20
"""What has to do for it on a small disk: an hour at 30 requests/s."""

ACK_WAIT_S = 10.0
"""A message whose consumer went silent for this long goes to another; a handler at work renews it."""

REDELIVERY_DELAYS_S = (0.1, 0.5, 2.0, 10.0, 30.0)
"""How long after each failed attempt a message comes again; the last one repeats."""

_DAY_S = 24 * 3600.0


@dataclass(frozen=True, kw_only=True)
class StreamSpec:
    """A JetStream stream. Times in seconds; `history` is messages kept per subject, 0 for all, and `max_bytes` how
    large it may become, 0 for any size. A server without that much disk is asked for less, down to `least_bytes`."""

    name: str
    subjects: tuple[str, ...]
    history: int = 0
    max_age_s: float = 0.0
    max_bytes: int = 0
    least_bytes: int = 0
    duplicate_window_s: float = 120.0
    is_bucket: bool = False


@dataclass(frozen=True, kw_only=True)
class DurableSpec:
    """A durable consumer that the processes of one service share."""

    stream: str
    name: str
    subject: str
    service: Service


def event_streams(channels: tuple[Channel[Any, Any], ...] = CHANNELS) -> tuple[StreamSpec, ...]:
    """A week of facts: time enough to repair a consumer, and for an audit of what happened. Of usage, which the
    registry's database keeps, only what bridges its absence."""
    events, usage = (_subjects(channels, stream) for stream in (Stream.EVENTS, Stream.USAGE))
    return (
        StreamSpec(name=Stream.EVENTS.value, subjects=events, max_age_s=7 * _DAY_S),
        StreamSpec(
            name=Stream.USAGE.value, subjects=usage, max_age_s=_DAY_S, max_bytes=USAGE_BYTES,
            least_bytes=USAGE_LEAST_BYTES,
        ),
    )  # fmt: skip


def stream_of(channel: Channel[Any, Any]) -> StreamSpec:
    """Where the facts of an EVENT channel are kept."""
    return next(spec for spec in event_streams() if spec.name == channel.stream.value)


def buckets(channels: tuple[Channel[Any, Any], ...] = CHANNELS) -> tuple[StreamSpec, ...]:
    """Only the last value of a key counts, so one is kept, for ever."""
    return tuple(
        StreamSpec(name=bucket_stream(channel), subjects=(f"{key_prefix(channel)}>",), history=1, is_bucket=True)
        for channel in channels
        if channel.kind is Kind.STATE
    )


def durables(channels: tuple[Channel[Any, Any], ...] = CHANNELS) -> tuple[DurableSpec, ...]:
    """One for every event that a service's processes share."""
    return tuple(
        DurableSpec(
            stream=channel.stream.value,
            name=consumer_name(channel, reader.service.value),
            subject=channel.wildcard,
            service=reader.service,
        )
        for channel in channels
        if channel.kind is Kind.EVENT
        for reader in channel.readers
        if reader.fan_out is FanOut.POOL
    )


def _subjects(channels: tuple[Channel[Any, Any], ...], stream: Stream) -> tuple[str, ...]:
    return tuple(c.wildcard for c in channels if c.kind is Kind.EVENT and c.stream is stream)


def consumer_name(channel: Channel[Any, Any], durable: str) -> str:
    """The server's name for `durable` on this channel: one consumer follows one channel."""
    return f"{durable}-{channel.name.replace('.', '_')}"


def bucket_stream(channel: Channel[Any, Any]) -> str:
    return f"KV_{channel.bucket}"


def key_prefix(channel: Channel[Any, Any]) -> str:
    """What stands before the key in the subject of a stored value."""
    return f"$KV.{channel.bucket}."


def redelivery_delay_s(deliveries: int) -> float:
    """How long to wait after the delivery number `deliveries` (from 1) failed."""
    return REDELIVERY_DELAYS_S[min(max(deliveries, 1), len(REDELIVERY_DELAYS_S)) - 1]
