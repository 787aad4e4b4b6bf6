"""Starts the children of an embedded fleet, keeps them alive, ends them in order."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import NoReturn

import httpx
import msgspec

from infra.local.child import Child, clean_environment
from infra.local.fleet import ProcessSpec
from infra.local.layout import Layout
from infra.local.preflight import CannotStart, WrongSetting
from infra.local.restarts import Deaths, on_death
from infra.nats.credentials import write_private

Say = Callable[[str], None]
_POLL_S = 0.1
_NOTHING = "it said nothing"
_WRONG_SETTING = 2
"""The exit code of a service that cannot run with its settings (`shared.runtime.service.run_main`)."""
_GROUND = ("nats", "valkey")
"""What services stand on until they have ended."""
_STOP_GRACE_S = 30.0
"""More than gateways and replicas take to let streams finish (20 s) and to say their last word."""


class Supervisor:
    """The children by name, in start order. Nothing runs before `start_*` is called."""

    def __init__(self, layout: Layout, say: Say) -> None:
        self._layout = layout
        self._say = say
        self._children: dict[str, Child] = {}
        self._deaths: dict[str, Deaths] = {}
        self._dispensable: set[str] = set()
        self._leaving: set[str] = set()
        self._work: set[asyncio.Task[str | None]] = set()

    def start_program(self, name: str, argv: Sequence[str], *, vital: bool = True) -> Child:
        """Start a program that is not one of our services, such as nats-server."""
        if not vital:
            self._dispensable.add(name)
        return self._start(name, argv, {})

    def start_service(self, spec: ProcessSpec) -> Child:
        if not spec.vital:
            self._dispensable.add(spec.name)
        return self._start(spec.name, [sys.executable, "-m", spec.module], spec.env)

    def names(self) -> frozenset[str]:
        """Of every child, those included that are leaving."""
        return frozenset(self._children)

    def is_leaving(self, name: str) -> bool:
        return name in self._leaving

    def retire(self, name: str) -> None:
        """End this child for good, in the background; its name is free again once it is gone."""
        if name in self._children and name not in self._leaving:
            self._leaving.add(name)
            self._begin(self._retire(self._children[name]))

    def remember_deaths(self, name: str, deaths: Deaths) -> None:
        """What happened to a child before this supervisor knew it."""
        self._deaths[name] = deaths

    async def wait_ready(self, specs: Sequence[ProcessSpec], timeout_s: float) -> None:
        """Returns when every one of them has answered ready. Raises CannotStart with what the slowest still lacks."""
        async with httpx.AsyncClient(timeout=2.0, trust_env=False) as http:
            await asyncio.gather(*(self._wait_one(http, spec, timeout_s) for spec in specs))

    async def no_death(self) -> NoReturn:
        """Raises CannotStart when a vital child dies: at the start, none is started again. WrongSetting, if it is for
        what it was told."""
        while True:
            for child in self._children.values():
                vital = child.name not in self._dispensable | self._leaving
                if vital and (code := child.exit_code()) is not None:
                    words = child.last_words() or _NOTHING
                    kind = WrongSetting if code == _WRONG_SETTING else CannotStart
                    raise kind(f"{child.name} ended with exit code {code} at start: {words} (log: {child.log})")
            await asyncio.sleep(_POLL_S)

    async def keep_alive(self) -> str:
        """Restart children that die, each for itself, also those that came later. Returns only with the sentence why
        the fleet cannot go on, which is never that of a service that is not vital."""
        reviving: dict[str, asyncio.Task[str | None]] = {}
        while True:
            for name, child in self._children.items():
                code = child.exit_code()
                if code is not None and name not in reviving and name not in self._leaving:
                    reviving[name] = self._begin(self._revive(child, code))
            await asyncio.sleep(_POLL_S)
            for name in [name for name, work in reviving.items() if work.done()]:
                if fatal := reviving.pop(name).result():
                    return fatal

    async def stop(self) -> None:
        """End every child: all services at once, then what they stand on."""
        for work in self._work:
            work.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        services = [child for name, child in self._children.items() if name not in _GROUND]
        await asyncio.gather(*(child.stop(_STOP_GRACE_S) for child in services))
        ground = [child for name, child in self._children.items() if name in _GROUND]
        await asyncio.gather(*(child.stop(_STOP_GRACE_S) for child in ground))

    def _start(self, name: str, argv: Sequence[str], env: Mapping[str, str]) -> Child:
        child = Child(name, argv, {**clean_environment(os.environ), **env}, self._layout.log(name))
        self._launch(child)
        return child

    def _launch(self, child: Child) -> None:
        """Raises OSError if it cannot be run; it is no child then."""
        child.start()
        self._children[child.name] = child
        self._write_pids()

    def _write_pids(self) -> None:
        pids = {name: known.pid for name, known in self._children.items()}
        write_private(self._layout.pids, msgspec.json.format(msgspec.json.encode(pids)))

    def _begin(self, work: Coroutine[None, None, str | None]) -> asyncio.Task[str | None]:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    async def _retire(self, child: Child) -> None:
        await child.stop(_STOP_GRACE_S)
        del self._children[child.name]
        self._leaving.discard(child.name)
        self._deaths.pop(child.name, None)
        self._write_pids()
        self._say(f"{child.name} has left")

    async def _revive(self, child: Child, code: int) -> str | None:
        vital = child.name not in self._dispensable
        before = self._deaths.get(child.name, Deaths())
        self._deaths[child.name], verdict = on_death(before, time.monotonic(), vital=vital)
        words = child.last_words() or _NOTHING
        if verdict.restart_in_s is None:
            return f"{child.name} {verdict.reason} (exit code {code}): {words} (log: {child.log})"
        told = "" if vital else f": {words}"
        self._say(f"{child.name} ended with exit code {code}; starting it again ({verdict.reason}){told}")
        await asyncio.sleep(verdict.restart_in_s)
        if child.name in self._leaving or self._children.get(child.name) is not child:
            return None  # retired meanwhile, and perhaps replaced
        self._launch(child)
        self._say(f"{child.name} runs again (pid {child.pid})")
        return None

    async def _wait_one(self, http: httpx.AsyncClient, spec: ProcessSpec, timeout_s: float) -> None:
        child, deadline_s, last = self._children[spec.name], time.monotonic() + timeout_s, "no answer yet"
        while time.monotonic() < deadline_s:
            try:
                answer = await http.get(spec.ready_url)
            except httpx.HTTPError:
                answer = None
            if answer is not None and answer.status_code == 200:
                self._say(f"{spec.name} is ready")
                return
            last = answer.text.strip()[:200] if answer is not None else last
            await asyncio.sleep(_POLL_S)
        raise CannotStart(f"{spec.name} was not ready after {timeout_s:.0f} s ({last}); its log: {child.log}")
