"""The desired state of a MemoryBroker: buckets of encoded values, and those who watch them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from shared.bus.calls import Mailbox, bounded, read
from shared.bus.memory_subscriptions import MemorySubscription
from shared.bus.port import Change, Ids, RevisionConflict
from shared.contracts.channel import Channel, Service
from shared.contracts.codec import encode
from shared.contracts.permissions import require_reader, require_writer

M = TypeVar("M")


class Stored(NamedTuple):
    """`payload` is None where a key was deleted."""

    payload: bytes | None
    revision: int


class Bucket:
    """Keys are tuples of ids. One revision counter for all of them."""

    def __init__(self) -> None:
        self.stored: dict[Ids, Stored] = {}
        self.watches: list[MemoryWatch[Any]] = []
        self._revision = 0

    def write(self, ids: Ids, payload: bytes | None, expected_revision: int | None) -> int:
        if expected_revision is not None and expected_revision != self._seen_revision(ids, expected_revision):
            raise RevisionConflict(f"{'.'.join(ids)} is no longer at revision {expected_revision}")
        self._revision += 1
        self.stored[ids] = Stored(payload, self._revision)
        for watch in self.watches:
            watch.notice(ids, self.stored[ids])
        return self._revision

    def _seen_revision(self, ids: Ids, expected_revision: int) -> int:
        """A deleted key counts as absent (0), and may also be named by the revision of its deletion."""
        stored = self.stored.get(ids)
        if stored is None or (stored.payload is None and expected_revision == 0):
            return 0
        return stored.revision


class Holder(Protocol):
    """The bus that a store or a watch belongs to."""

    @property
    def connected(self) -> bool: ...

    def require_connected(self) -> None: ...

    def adopt(self, subscription: MemorySubscription) -> MemorySubscription:
        """Close it with the bus."""


class MemoryWatch(Generic[M]):
    def __init__(
        self,
        holder: Holder,
        channel: Channel[M, Any],
        bucket: Bucket,
        prefix: Ids,
        on_change: Callable[[Change[M]], Awaitable[None]],
    ) -> None:
        self._holder = holder
        self._channel = channel
        self._bucket = bucket
        self._prefix = prefix
        self._on_change = on_change
        self._mailbox = Mailbox(f"watch of {channel.name}")
        self._told: set[Ids] = set()

    async def fill(self) -> None:
        """Tell everything there is, and follow from here on. Returns when it has been told."""
        self._bucket.watches.append(self)
        self.tell_all()
        await self._mailbox.reached()

    def tell_all(self) -> None:
        present = {ids for ids, stored in self._bucket.stored.items() if stored.payload is not None}
        for ids in sorted(self._told - present):
            self._tell(ids, self._bucket.stored[ids])
        for ids, stored in sorted(self._bucket.stored.items(), key=lambda item: item[1].revision):
            if ids in present and self._covers(ids):
                self._tell(ids, stored)

    def notice(self, ids: Ids, stored: Stored) -> None:
        if self._covers(ids) and self._holder.connected:
            self._tell(ids, stored)

    def belongs_to(self, holder: object) -> bool:
        return self._holder is holder

    def subscription(self) -> MemorySubscription:
        return MemorySubscription(detach=self._leave, end=self._mailbox.close)

    def _leave(self) -> None:
        self._bucket.watches.remove(self)

    def _covers(self, ids: Ids) -> bool:
        return ids[: len(self._prefix)] == self._prefix

    def _tell(self, ids: Ids, stored: Stored) -> None:
        value = None if stored.payload is None else read(self._channel, stored.payload)
        if stored.payload is not None and value is None:
            return
        if value is None:
            self._told.discard(ids)
        else:
            self._told.add(ids)
        self._mailbox.put(self._on_change, Change(ids=ids, value=value, revision=stored.revision))


class MemoryStore(Generic[M]):
    def __init__(self, holder: Holder, service: Service, channel: Channel[M, Any], bucket: Bucket) -> None:
        self._holder = holder
        self._service = service
        self._channel = channel
        self._bucket = bucket

    async def put(self, value: M, *ids: str, expected_revision: int | None = None) -> int:
        require_writer(self._service, self._channel)
        self._channel.subject(*ids)
        self._holder.require_connected()
        return self._bucket.write(ids, bounded(encode(self._channel, value)), expected_revision)

    async def get(self, *ids: str) -> Change[M] | None:
        self._channel.subject(*ids)
        self._holder.require_connected()
        stored = self._bucket.stored.get(ids)
        return None if stored is None else self._change(ids, stored)

    async def delete(self, *ids: str, expected_revision: int | None = None) -> None:
        require_writer(self._service, self._channel)
        self._channel.subject(*ids)
        self._holder.require_connected()
        if expected_revision is not None:
            self._bucket.write(ids, None, expected_revision)
        elif ids in self._bucket.stored and self._bucket.stored[ids].payload is not None:
            self._bucket.write(ids, None, None)

    async def entries(self) -> list[Change[M]]:
        self._holder.require_connected()
        stored = sorted(self._bucket.stored.items(), key=lambda item: item[1].revision)
        changes = [self._change(ids, value) for ids, value in stored]
        return [change for change in changes if change is not None]

    async def watch(self, on_change: Callable[[Change[M]], Awaitable[None]], *ids: str) -> MemorySubscription:
        require_reader(self._service, self._channel)
        self._channel.pattern(*ids)
        self._holder.require_connected()
        watch = MemoryWatch(self._holder, self._channel, self._bucket, ids, on_change)
        await watch.fill()
        return self._holder.adopt(watch.subscription())

    def _change(self, ids: Ids, stored: Stored) -> Change[M] | None:
        value = None if stored.payload is None else read(self._channel, stored.payload)
        return None if value is None else Change(ids=ids, value=value, revision=stored.revision)
