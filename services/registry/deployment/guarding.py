"""Watches versions that have just taken over, and takes the alias back from one that breaks its conditions."""

from __future__ import annotations

import asyncio

import msgspec

from services.registry.core.deployment import guards
from services.registry.core.deployment.aliases import GUARD, AliasChange, AliasState, Change, Denied
from services.registry.core.deployment.guards import Guard, Observed
from services.registry.core.records import StoredAdapter
from services.registry.deployment.alias_changes import write_change
from services.registry.deployment.aliasing import Aliasing
from services.registry.fleet import UNANSWERED, Fleet
from services.registry.io import adapter_rows, alias_rows, usage_rows
from services.registry.io.database import Collision, Database, DatabaseUnavailable
from shared.bus.port import AskFailed
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger

_log = get_logger(__name__)


class GuardPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """An owner is probed every `probe_s`; so many probes in a row that fail are trouble, one that finds something
    else in the slot is at once."""

    probe_s: float = 10.0
    failed_probes: int = 3


class _Watch(msgspec.Struct, kw_only=True):
    """What is remembered of one version while it is watched; a restart begins anew."""

    revision: int
    probe_at_s: float
    probes: int = 0
    failed: int = 0
    trouble: str = ""


class Guarding:
    def __init__(self, database: Database, aliasing: Aliasing, fleet: Fleet, clock: Clock, policy: GuardPolicy) -> None:
        self._database = database
        self._aliasing = aliasing
        self._fleet = fleet
        self._clock = clock
        self._policy = policy
        self._troubles = database.changes.follow_troubles()
        self._watches: dict[str, _Watch] = {}

    async def check(self) -> None:
        """Look at every guarded alias once. Raises DatabaseUnavailable; the next check finds the same."""
        async with self._database.read() as connection:
            guarded = {state.alias: state for state in await alias_rows.guarded(connection)}
        self._watches = {alias: self._watch_of(state) for alias, state in guarded.items()}
        self._note_troubles(guarded)
        await asyncio.gather(*(self._look_safely(state) for state in guarded.values()))

    def _watch_of(self, state: AliasState) -> _Watch:
        known = self._watches.get(state.alias)
        if known is not None and known.revision == state.revision:
            return known
        return _Watch(revision=state.revision, probe_at_s=self._clock.now_s())

    def _note_troubles(self, guarded: dict[str, AliasState]) -> None:
        while not self._troubles.empty():
            trouble = self._troubles.get_nowait()
            for state in guarded.values():
                if state.newest_adapter_id == trouble.adapter_id and state.guard is not None and state.guard.probe:
                    self._watches[state.alias].trouble = trouble.reason

    async def _look_safely(self, state: AliasState) -> None:
        """One alias in trouble keeps the guard from no other."""
        try:
            await self._look(state)
        except (DatabaseUnavailable, Collision) as error:
            _log.warning("a guard waits for the database", alias=state.alias, error=error)
        except Exception as error:
            _log.exception("a guard stumbled", alias=state.alias, error=error)

    async def _look(self, state: AliasState) -> None:
        guard, now_s = state.guard, self._clock.wall_s()
        if guard is None:
            return
        since_s = guards.window_begins_s(guard, state.updated_at_s, now_s)
        async with self._database.read() as connection:
            adapter = await adapter_rows.find(connection, state.newest_adapter_id)
            recent = await usage_rows.recent(connection, state.newest_adapter_id, since_s)
        trouble = await self._trouble(state, adapter) if guard.probe and adapter is not None else ""
        found = Observed(
            requests=recent.requests, errors=recent.errors, ttft_p95_ms=recent.ttft_p95_ms, trouble=trouble
        )
        if (reason := guards.breach(guard, found)) is not None:
            await self._take_back(state, reason)
        elif guards.has_held(guard, state.updated_at_s, now_s):
            await self._release(state, guard)

    async def _trouble(self, state: AliasState, adapter: StoredAdapter) -> str:
        watch = self._watches[state.alias]
        if adapter.status != "active":
            return f"it is {adapter.status}: {adapter.reason}"
        if not watch.trouble and self._clock.now_s() >= watch.probe_at_s:
            watch.probe_at_s = self._clock.now_s() + self._policy.probe_s
            watch.trouble = await self._probe(watch, adapter)
        return watch.trouble

    async def _probe(self, watch: _Watch, adapter: StoredAdapter) -> str:
        """What is wrong with the version on one of its owners, each in turn. Nobody's silence counts against it."""
        try:
            owners = await self._fleet.owners(adapter)
            if not owners:
                return ""
            replica_id = owners[watch.probes % len(owners)]
            watch.probes += 1
            found = await self._fleet.fingerprint(replica_id, adapter)
        except AskFailed as error:
            watch.failed += 1
            return (
                "" if watch.failed < self._policy.failed_probes else f"{watch.failed} probes in a row failed: {error}"
            )
        except UNANSWERED as error:
            _log.info("a probe got no answer", adapter_id=adapter.adapter_id, error=error)
            return ""
        watch.failed = 0
        return guards.judge_probe(found, adapter.effects)

    async def _take_back(self, state: AliasState, reason: str) -> None:
        """Unless somebody has changed the alias meanwhile: then that is what they want."""
        adapter_id = state.newest_adapter_id
        asked = Change(actor=GUARD, reason=f"{adapter_id}: {reason}", if_match=state.revision)
        outcome = await self._aliasing.roll_back(state.alias, change=asked, kind="auto_rollback")
        if isinstance(outcome, Denied):
            _log.error("a guard could not take back", alias=state.alias, reason=reason, denied=outcome.message)
            if outcome.code != "alias_changed":
                await self._take_off(state, f"{adapter_id}: {reason}, and the way back is closed: {outcome.message}")
            return
        _log.warning("a guard took back", alias=state.alias, adapter_id=adapter_id, reason=reason)

    async def _release(self, state: AliasState, guard: Guard) -> None:
        if await self._take_off(state, f"{state.newest_adapter_id} has held for {guard.hold_s:g} s"):
            held_s = f"{guard.hold_s:g} s"
            _log.info("a version has held", alias=state.alias, adapter_id=state.newest_adapter_id, held=held_s)

    async def _take_off(self, state: AliasState, reason: str) -> bool:
        """What the guard would have gone back to leaves with it; whether nobody had changed the alias meanwhile."""
        async with self._database.write() as connection:
            current = await alias_rows.find(connection, state.alias, to_change=True)
            if current is None or current.revision != state.revision:
                return False
            unguarded = AliasChange(state=msgspec.structs.replace(current, guard=None), kind="unguard", reason=reason)
            await write_change(connection, unguarded, Change(actor=GUARD), self._clock.wall_s())
            return True
