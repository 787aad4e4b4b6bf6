"""Where the story plays: one fleet with three pools, its console, its public and its admin address."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from infra.lifecycle_demo.cast import Troupe
from infra.lifecycle_demo.telling import Console, StoryWentWrong, Teller
from infra.local.temporary import TemporaryFleet

_LOOK_AGAIN_S = 0.1
_FROZEN_S, _AWAKE_S = 0.6, 0.02  # shorter than what a gateway takes for death


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The bases by name. `words` is what each adapter must answer, by its id; acts add to it before they deploy."""

    fleet: TemporaryFleet
    teller: Teller
    console: Console
    old: Troupe
    new: Troupe
    old_base: str
    new_base: str
    folder: Path
    words: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def admin(self) -> Iterator[httpx.Client]:
        connection = self.fleet.connection
        headers = {"Authorization": f"Bearer {connection.admin_key}"}
        with httpx.Client(base_url=connection.admin_url, headers=headers, timeout=60.0, trust_env=False) as client:
            yield client

    def adapter(self, adapter_id: str) -> dict[str, Any]:
        with self.admin() as admin:
            found: dict[str, Any] = admin.get(f"/internal/adapters/{adapter_id}").raise_for_status().json()
            return found


def until(holds: Callable[[], bool], what: str, deadline_s: float = 60.0) -> None:
    """Looks until it holds. Raises StoryWentWrong."""
    end_s = time.monotonic() + deadline_s
    while not holds():
        if time.monotonic() > end_s:
            raise StoryWentWrong(f"waited {deadline_s:g} s for {what}.")
        time.sleep(_LOOK_AGAIN_S)


@contextmanager
def faltering(pid: int) -> Iterator[None]:
    """A process that stands still most of the time, as one does on a machine without memory left."""
    done = threading.Event()

    def falter() -> None:
        while not done.is_set():
            os.kill(pid, signal.SIGSTOP)
            done.wait(_FROZEN_S)
            os.kill(pid, signal.SIGCONT)
            done.wait(_AWAKE_S)

    thread = threading.Thread(target=falter, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
