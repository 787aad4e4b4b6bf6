"""Saying on the bus what the outbox holds and what buckets must hold: many at a time, in an order that is safe."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from services.registry.core.reconciliation import repair
from services.registry.core.together import Saying, groups
from services.registry.io.notes import channel_of, message_of
from services.registry.io.outbox_rows import OutboxRow
from shared.bus.port import Bus, BusUnavailable
from shared.contracts.channel import Channel, Kind
from shared.contracts.codec import BadMessage
from shared.runtime.logs import get_logger

_log = get_logger(__name__)

_UNTELLABLE = (BadMessage, KeyError, ValueError, PermissionError)
"""What no repetition mends: a row of another version of the catalog, a message that is too long."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """So many rows, from the first, are the bus's now; with `trouble` those after them may be in part."""

    count: int
    trouble: BusUnavailable | None = None


class Teller:
    def __init__(self, bus: Bus, at_once: int) -> None:
        self._bus = bus
        self._at_once = at_once

    async def tell(self, rows: Sequence[OutboxRow]) -> Told:
        """In this order. Every row after the first that failed is to be told again, in order: facts have their
        message ids, and of a value the last one stays. A row that no bus would take counts as told: it must not hold
        up those behind it, and reconciliation mends a value."""
        count = 0
        for group in _grouped(rows):
            outcomes = await asyncio.gather(*map(self._tell, group), return_exceptions=True)
            for row, outcome in zip(group, outcomes, strict=True):
                if isinstance(outcome, BusUnavailable):
                    return Told(count=count, trouble=outcome)
                _require_told(row, outcome)
                count += 1
        return Told(count=count)

    async def repair(self, channel: Channel[Any, Any], wanted: Mapping[tuple[str, ...], Any]) -> None:
        """Make a bucket what it should be. Raises BusUnavailable; what was written till then is right."""
        bucket = self._bus.state(channel)
        found = {change.ids: change.value for change in await bucket.entries()}
        todo = repair(wanted, found)
        for at in range(0, len(todo.puts), self._at_once):
            await asyncio.gather(*(bucket.put(message, *ids) for ids, message in todo.puts[at : at + self._at_once]))
        for at in range(0, len(todo.deletes), self._at_once):
            await asyncio.gather(*(bucket.delete(*ids) for ids in todo.deletes[at : at + self._at_once]))
        if todo.puts or todo.deletes:
            _log.info("a bucket was repaired", channel=channel.name, put=len(todo.puts), deleted=len(todo.deletes))

    async def _tell(self, row: OutboxRow) -> None:
        note = row.note
        channel, message = channel_of(note), message_of(note)
        if channel.kind is Kind.EVENT:
            await self._bus.publish(channel, message, message_id=row.message_id)
        elif message is None:
            await self._bus.state(channel).delete(*note.ids)
        else:
            await self._bus.state(channel).put(message, *note.ids)


def _grouped(rows: Sequence[OutboxRow]) -> Iterator[Sequence[OutboxRow]]:
    begin = 0
    for size in groups([_saying(row) for row in rows]):
        yield rows[begin : begin + size]
        begin += size


def _saying(row: OutboxRow) -> Saying:
    """A fact has neither ids nor a removal."""
    note = row.note
    return Saying(key=(note.channel, *note.ids) if note.ids else None, removes=note.payload is None)


def _require_told(row: OutboxRow, outcome: BaseException | None) -> None:
    """Raises what is neither the bus's nor the row's trouble."""
    if isinstance(outcome, _UNTELLABLE):
        _log.error("an outbox row cannot be told", channel=row.note.channel, row_id=row.row_id, error=outcome)
    elif outcome is not None:
        raise outcome
