"""JetStream's request and answer format, as far as the bus speaks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from shared.bus.nats_link import CONFIRM_S, Link
from shared.bus.port import BusUnavailable, DeadlineExceeded, NoResponders, RevisionConflict

EXPECTED_REVISION = "Nats-Expected-Last-Subject-Sequence"
MESSAGE_ID = "Nats-Msg-Id"
OPERATION = "KV-Operation"
REVISION = "Nats-Sequence"
_WRONG_REVISION = (10071, 10164)


class ApiError(msgspec.Struct, frozen=True):
    code: int = 0
    err_code: int = 0
    description: str = ""


class Stored(msgspec.Struct, frozen=True):
    """The answer to a message for a stream."""

    error: ApiError | None = None
    seq: int = 0


class Delivered(msgspec.Struct, frozen=True):
    consumer_seq: int = 0


class ConsumerCreated(msgspec.Struct, frozen=True):
    error: ApiError | None = None
    num_pending: int = 0
    delivered: Delivered = Delivered()

    @property
    def total(self) -> int:
        """What was there to deliver when the consumer was made; some of it may be on its way already."""
        return self.num_pending + self.delivered.consumer_seq


class Position(msgspec.Struct, frozen=True):
    """Where a delivered message stands, read from its reply subject."""

    attempt: int
    stream_sequence: int
    consumer_sequence: int
    pending: int


def position_of(reply: str) -> Position:
    """`$JS.ACK.<stream>.<consumer>.<attempt>.<stream seq>.<consumer seq>.<time>.<pending>`; the longer
    form has a domain and an account after ACK, and may end in one more token."""
    tokens = reply.split(".")
    first = 4 if len(tokens) == 9 else 6
    attempt, stream_sequence, consumer_sequence, _, pending = (int(token) for token in tokens[first : first + 5])
    return Position(attempt, stream_sequence, consumer_sequence, pending)


async def store(link: Link, subject: str, payload: bytes, headers: dict[str, str] | None = None) -> int:
    """Store a message in the stream of its subject; the sequence number it got.

    Raises RevisionConflict (nothing was stored), or BusUnavailable: unless there was no connection at all,
    whether it was stored is then unknown.
    """
    stored = msgspec.json.decode(await _ask(link, subject, payload, headers), type=Stored)
    if stored.error is None:
        return stored.seq
    if stored.error.err_code in _WRONG_REVISION:
        raise RevisionConflict(f"{subject}: {stored.error.description}")
    raise BusUnavailable(f"NATS did not store {subject}: {stored.error.description}")


async def create_consumer(link: Link, stream: str, config: Mapping[str, Any]) -> ConsumerCreated:
    """Create it, or agree with the one that exists. Raises BusUnavailable."""
    subject = f"$JS.API.CONSUMER.CREATE.{stream}.{config['name']}.{config['filter_subject']}"
    body = msgspec.json.encode({"stream_name": stream, "config": config})
    created = msgspec.json.decode(await _ask(link, subject, body, None), type=ConsumerCreated)
    if created.error is not None:
        raise BusUnavailable(f"NATS did not create a consumer of {stream}: {created.error.description}")
    return created


async def _ask(link: Link, subject: str, payload: bytes, headers: dict[str, str] | None) -> bytes:
    try:
        message = await link.request(subject, payload, CONFIRM_S, headers)
    except NoResponders:
        raise BusUnavailable(f"no stream takes {subject}: was NATS provisioned?") from None
    except DeadlineExceeded as error:
        raise BusUnavailable(f"NATS did not confirm: {error}") from None
    return bytes(message.data)
