"""The gateway's ears on the bus: subscriptions for what is live, watches for what is desired."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from services.gateway.conversations import Conversations
from services.gateway.core.directory import Directory
from services.gateway.core.fleet import Fleet
from services.gateway.core.refusal import OUT_OF_TOUCH
from services.gateway.limits import Limits
from services.gateway.replicas import Replicas
from shared.bus.port import Bus, BusUnavailable, Change, Ids, Subscription
from shared.contracts import catalog
from shared.contracts.channel import Channel
from shared.messages.desired import AliasRecord
from shared.messages.generation import Answer, Frame
from shared.messages.reports import GatewayReport, ReplicaReport, Residency
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger

_AGAIN_S = 0.5
_ALL = 1 << 20

_log = get_logger(__name__)


class Audience(msgspec.Struct, frozen=True, kw_only=True):
    """Who is told what is heard."""

    gateway_id: str
    directory: Directory
    fleet: Fleet
    replicas: Replicas
    conversations: Conversations
    limits: Limits


class Following:
    """Starts listening in the background, so that the HTTP door can say meanwhile that it is not ready.

    The directory is `full` once every watch has told what there was, and stays so. It is `current` while the
    bus is there as well: only then does a name that is not in it not exist.
    """

    def __init__(self, bus: Bus, clock: Clock, audience: Audience) -> None:
        self._bus = bus
        self._clock = clock
        self._audience = audience
        self._subscriptions: list[Subscription] = []
        self._task: asyncio.Task[None] | None = None
        self.full = asyncio.Event()

    @property
    def current(self) -> bool:
        return self.full.is_set() and self._bus.connected

    @property
    def hearing(self) -> bool:
        """Whether what others say reaches this gateway."""
        return self.full.is_set() and self._bus.hearing

    def not_full(self) -> str | None:
        """Why not, in one sentence."""
        return None if self.full.is_set() else "The gateway has not yet learnt who may call what."

    def not_current(self) -> str | None:
        return self.not_full() or (None if self._bus.connected else OUT_OF_TOUCH)

    async def start(self) -> None:
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for subscription in self._subscriptions:
            await subscription.close()

    async def _follow(self) -> None:
        try:
            await self._listen()
        except Exception as error:
            _log.exception("the bus cannot be followed: this gateway will never be ready", error=error)

    async def _listen(self) -> None:
        for listen in (*self._live(), *self._watches()):
            self._subscriptions.append(await self._insist(listen))
        ranked = self._audience.fleet.rank_ahead(_ALL)
        self.full.set()
        _log.info("the directory is full", ranked_adapters=ranked)

    async def _insist(self, listen: Callable[[], Awaitable[Subscription]]) -> Subscription:
        """The bus, or a bucket of it, may come up after this gateway."""
        while True:
            try:
                return await listen()
            except BusUnavailable as error:
                _log.warning("the bus cannot be followed yet", error=error)
                await self._clock.sleep_s(_AGAIN_S)

    def _live(self) -> list[Callable[[], Awaitable[Subscription]]]:
        gateway_id, hear = self._audience.gateway_id, self._bus.hear
        return [
            lambda: hear(catalog.ANSWER, self._on_answer, gateway_id, on_unanswered=self._on_unanswered),
            lambda: hear(catalog.FRAME, self._on_frame, gateway_id),
            lambda: hear(catalog.REPLICA_REPORT, self._on_report),
            lambda: hear(catalog.REPLICA_RESIDENCY, self._on_residency),
            lambda: hear(catalog.GATEWAY_REPORT, self._on_gateway),
        ]

    def _watches(self) -> list[Callable[[], Awaitable[Subscription]]]:
        directory, fleet = self._audience.directory, self._audience.fleet
        return [
            self._watch(catalog.MEMBERSHIP, fleet.put_membership),
            self._watch(catalog.OWNER_COUNT, fleet.put_owner_count),
            self._watch(catalog.BASE_MODEL, directory.put_base),
            self._watch(catalog.ALIAS, self._put_alias),
            self._watch(catalog.TENANT, directory.put_tenant),
            self._watch(catalog.API_KEY, directory.put_key),
        ]

    def _watch(
        self, channel: Channel[Any, Any], put: Callable[[str, Any], None]
    ) -> Callable[[], Awaitable[Subscription]]:
        async def on_change(change: Change[Any]) -> None:
            put(change.ids[0], change.value)

        return lambda: self._bus.state(channel).watch(on_change)

    def _put_alias(self, alias_hash: str, record: AliasRecord | None) -> None:
        self._audience.directory.put_alias(alias_hash, record)
        for version in (record, record.split) if record is not None else ():
            if version is not None:
                self._audience.fleet.expect(version.pool_id, version.adapter_id)

    def _on_answer(self, answer: Answer, ids: Ids) -> None:
        self._audience.conversations.on_answer(answer)

    def _on_unanswered(self, ids: Ids) -> None:
        self._audience.conversations.on_unanswered(ids[1])

    def _on_frame(self, frame: Frame, ids: Ids) -> None:
        self._audience.replicas.on_frame(frame)

    def _on_report(self, report: ReplicaReport, ids: Ids) -> None:
        self._audience.replicas.on_report(report)

    def _on_gateway(self, report: GatewayReport, ids: Ids) -> None:
        self._audience.limits.on_report(report)

    def _on_residency(self, message: Residency, ids: Ids) -> None:
        self._audience.fleet.on_residency(message, self._clock.now_s())
