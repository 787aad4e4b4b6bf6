"""Desired state in a NATS key-value bucket."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from nats.aio.msg import Msg

from shared.bus.calls import bounded, read
from shared.bus.nats_jetstream import EXPECTED_REVISION, OPERATION, REVISION, store
from shared.bus.nats_link import CONFIRM_S, Link, header, status_of
from shared.bus.nats_watch import Watch
from shared.bus.port import BusUnavailable, Change, DeadlineExceeded, Ids, NoResponders, RevisionConflict, Subscription
from shared.contracts.channel import Channel, Service
from shared.contracts.codec import encode
from shared.contracts.permissions import require_writer
from shared.contracts.streams import bucket_stream, key_prefix

M = TypeVar("M")

_DELETION = {OPERATION: "DEL"}


class NatsStore(Generic[M]):
    """See shared.bus.port.StateStore."""

    def __init__(
        self, link: Link, service: Service, channel: Channel[M, Any], adopt: Callable[[Subscription], Subscription]
    ) -> None:
        self._link = link
        self._service = service
        self._channel = channel
        self._adopt = adopt

    async def put(self, value: M, *ids: str, expected_revision: int | None = None) -> int:
        require_writer(self._service, self._channel)
        subject = self._subject(ids)
        payload = bounded(encode(self._channel, value))
        try:
            return await self._write(subject, payload, expected_revision)
        except RevisionConflict:
            # To the server a deletion is a value like any other; to us the key is gone.
            deleted = await self._deletion(ids) if expected_revision == 0 else None
            if deleted is None:
                raise
            return await self._write(subject, payload, deleted)

    async def get(self, *ids: str) -> Change[M] | None:
        message = await self._last(ids)
        if message is None or _is_deletion(message):
            return None
        value = read(self._channel, message.data)
        return None if value is None else Change(ids=ids, value=value, revision=_revision(message))

    async def delete(self, *ids: str, expected_revision: int | None = None) -> None:
        require_writer(self._service, self._channel)
        if expected_revision is not None:
            await store(self._link, self._subject(ids), b"", _DELETION | {EXPECTED_REVISION: str(expected_revision)})
            return
        message = await self._last(ids)
        if message is not None and not _is_deletion(message):
            await store(self._link, self._subject(ids), b"", _DELETION)

    async def entries(self) -> list[Change[M]]:
        found: list[Change[M]] = []

        async def collect(change: Change[M]) -> None:
            found.append(change)

        watch = Watch(self._link, self._channel, (), collect)
        await watch.start()
        await watch.close()
        last = {change.ids: change for change in found}
        return [change for change in last.values() if change.value is not None]

    async def watch(self, on_change: Callable[[Change[M]], Awaitable[None]], *ids: str) -> Subscription:
        watch = Watch(self._link, self._channel, ids, on_change)
        await watch.start()
        return self._adopt(watch)

    def _subject(self, ids: Ids) -> str:
        self._channel.subject(*ids)
        return key_prefix(self._channel) + ".".join(ids)

    async def _write(self, subject: str, payload: bytes, expected_revision: int | None) -> int:
        headers = None if expected_revision is None else {EXPECTED_REVISION: str(expected_revision)}
        return await store(self._link, subject, payload, headers)

    async def _deletion(self, ids: Ids) -> int | None:
        """The revision at which the key was deleted, or None if it has a value."""
        message = await self._last(ids)
        return _revision(message) if message is not None and _is_deletion(message) else None

    async def _last(self, ids: Ids) -> Msg | None:
        """What the bucket holds for this key, be it a value or a deletion."""
        subject = f"$JS.API.DIRECT.GET.{bucket_stream(self._channel)}.{self._subject(ids)}"
        try:
            message = await self._link.request(subject, b"", CONFIRM_S)
        except NoResponders:
            raise BusUnavailable(f"there is no bucket {self._channel.bucket}: was NATS provisioned?") from None
        except DeadlineExceeded as error:
            raise BusUnavailable(str(error)) from None
        if status_of(message) == "404":
            return None
        if not header(message, REVISION):
            raise BusUnavailable(f"NATS cannot read {self._channel.bucket} now: {message.headers}")
        return message


def _is_deletion(message: Msg) -> bool:
    return bool(header(message, OPERATION))


def _revision(message: Msg) -> int:
    return int(header(message, REVISION))
