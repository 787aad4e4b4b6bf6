"""Real replicas, each a process of its own that is started again when it was killed.

They are forked from a process that has run the engine once: what is left of a start is what a replica itself does.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from services.replica_worker.__main__ import main
from shared.bus.port import Bus, Ids
from shared.contracts.catalog import REPLICA_REPORT
from shared.messages.reports import ReplicaReport
from shared.runtime.service import run_main

_FORKS = get_context("forkserver")
Serve = Callable[[Mapping[str, str], Path], None]


def serve(environment: Mapping[str, str], log: Path) -> None:
    """The whole life of one replica process."""
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(environment)
    run_main(main())


class KillableReplicas:
    """`environments` by replica id. `run` is what each process does."""

    def __init__(self, environments: Mapping[str, Mapping[str, str]], folder: Path, run: Serve = serve) -> None:
        self._environments = environments
        self._folder = folder
        self._run = run
        self._processes: dict[str, ForkServerProcess] = {}
        self._ready: dict[str, str] = {}
        self._dead: set[str] = set()
        self._news = asyncio.Condition()
        _FORKS.set_forkserver_preload([__name__, "tests.support.run_engine_once"])

    async def start(self, bus: Bus) -> None:
        """Returns when all are ready. `bus` is of somebody who reads reports."""
        await bus.subscribe(REPLICA_REPORT, self._on_report)
        for name in self._environments:
            self._launch(name)
        await self.all_ready()

    async def stop(self) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            await asyncio.to_thread(process.join)
            process.close()

    async def kill(self, name: str) -> None:
        """As kill -9; another one takes its place at once."""
        process = self._processes[name]
        process.kill()
        await asyncio.to_thread(process.join)
        process.close()
        self._dead.add(self._ready.pop(name, ""))
        self._launch(name)

    async def all_ready(self) -> None:
        async with self._news:
            await self._news.wait_for(lambda: self._ready.keys() == self._environments.keys())

    def _launch(self, name: str) -> None:
        log = self._folder / f"{name}.log"
        process = _FORKS.Process(target=self._run, args=(self._environments[name], log), name=name, daemon=True)
        process.start()
        self._processes[name] = process

    async def _on_report(self, report: ReplicaReport, ids: Ids) -> None:
        async with self._news:
            if report.ready and report.incarnation not in self._dead:  # its last words may come late
                self._ready[report.replica_id] = report.incarnation
            self._news.notify_all()
