"""What the bus keeps on disk: one stream of facts, one bucket per kind of desired state, the shared durables.

Pure values, derived from the catalog; `infra.nats.provision` makes a server agree with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shared.contracts.catalog import CHANNELS
from shared.contracts.channel import PREFIX, Channel, FanOut, Kind, Service

MAX_MESSAGE_BYTES = 1_000_000
"""Of one encoded message. The server's limit is a little higher: it counts headers too."""

SERVER_PAYLOAD_BYTES = 1 << 20

EVENT_STREAM = "LF_EVENTS"

ACK_WAIT_S = 10.0
"""A message whose consumer went silent for this long goes to another; a handler at work renews it."""

REDELIVERY_DELAYS_S = (0.1, 0.5, 2.0, 10.0, 30.0)
"""How long after each failed attempt a message comes again; the last one repeats."""


@dataclass(frozen=True, kw_only=True)
class StreamSpec:
    """A JetStream stream. Times in seconds; `history` is messages kept per subject, 0 for all."""

    name: str
    subjects: tuple[str, ...]
    history: int = 0
    max_age_s: float = 0.0
    duplicate_window_s: float = 120.0
    is_bucket: bool = False


@dataclass(frozen=True, kw_only=True)
class DurableSpec:
    """A durable consumer of the event stream that the processes of one service share."""

    name: str
    subject: str
    service: Service


def event_stream() -> StreamSpec:
    """A week of facts: time enough to repair a consumer, and for an audit of what happened."""
    return StreamSpec(
        name=EVENT_STREAM, subjects=(f"{PREFIX}.{Kind.EVENT.value}.>",), max_age_s=7 * 24 * 3600.0
    )  # fmt: skip


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
        DurableSpec(name=consumer_name(channel, reader.service.value), subject=channel.wildcard, service=reader.service)
        for channel in channels
        if channel.kind is Kind.EVENT
        for reader in channel.readers
        if reader.fan_out is FanOut.POOL
    )


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
