"""One batch on an embedded fleet, timed by what its registry has on record."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Self

import msgspec

from infra.local.temporary import TemporaryFleet
from loadtest.registrations_processors import Reading, Spent, between, process_s

TENANT = "bench"
_PATIENCE_S = 1800.0
_LOOK_S = 0.02
_ACCEPTED = ("verified", "evaluating", "active")


class Took(msgspec.Struct, frozen=True, kw_only=True):
    """From when the command had read what it is to do: its imports are no part of a long batch. `accepted_s` until it
    ended: every adapter is checked and stored. `spent` is what that took of the processors."""

    count: int
    began_s: float
    accepted_s: float
    spent: Spent
    progress: tuple[str, ...]
    """What the command said of itself meanwhile."""


class Restart(msgspec.Struct, frozen=True, kw_only=True):
    """A registry that was killed once `accepted` were in, and had used `registry_s` of a processor since the batch
    began; `away_s` later the next one was in."""

    accepted: int
    away_s: float
    registry_s: float


class Ledger:
    """What the registry of a fleet has on record, by its database."""

    def __init__(self, fleet: TemporaryFleet) -> None:
        self._url = f"file:{fleet.layout.database}?mode=ro"

    def statuses(self) -> Counter[str]:
        return Counter(dict(self._ask("SELECT status, count(*) FROM adapters GROUP BY status")))

    def accepted(self) -> int:
        found = self.statuses()
        return sum(found[status] for status in _ACCEPTED)

    def accepted_once(self) -> int:
        """Adapters that were verified exactly once, and told of exactly once."""
        once = "SELECT adapter_id FROM adapter_states WHERE state = 'verified' GROUP BY adapter_id HAVING count(*) = 1"
        told = "SELECT json_extract(payload, '$.adapter_id') FROM outbox WHERE channel = 'adapter.verified'"
        notes = Counter(adapter_id for (adapter_id,) in self._ask(told))
        return sum(notes[adapter_id] == 1 for (adapter_id,) in self._ask(once))

    def _ask(self, query: str) -> list[tuple]:
        with closing(sqlite3.connect(self._url, uri=True, timeout=30)) as connection:
            return connection.execute(query).fetchall()


class _Watch:
    """Looks in a thread of its own, until the context ends."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        raise NotImplementedError


class Killing(_Watch):
    """Ends the registry as soon as so many are accepted, and sees when it goes on."""

    def __init__(self, fleet: TemporaryFleet, at: int) -> None:
        super().__init__()
        self.seen: Restart | None = None
        self._fleet = fleet
        self._ledger = Ledger(fleet)
        self._at = at
        self._before_s = process_s(fleet.pid("registry"))

    def _run(self) -> None:
        if not self._reaches(self._at):
            return
        used_s = process_s(self._fleet.pid("registry")) - self._before_s
        self._fleet.kill("registry")
        killed_s, accepted = time.monotonic(), self._ledger.accepted()
        if self._reaches(accepted + 1):
            self.seen = Restart(accepted=accepted, away_s=time.monotonic() - killed_s, registry_s=used_s)

    def _reaches(self, accepted: int) -> bool:
        """Whether so many are in before the batch is over; waits for either."""
        while not self._over.wait(_LOOK_S):
            if self._ledger.accepted() >= accepted:
                return True
        return False


class _Appearing(_Watch):
    """When a file is first there, which the command makes once it knows what to do."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.at_s = time.monotonic()
        self._file = file

    def _run(self) -> None:
        while not self._file.exists() and not self._over.wait(_LOOK_S):
            self.at_s = time.monotonic()


def run_batch(
    fleet: TemporaryFleet, source: tuple[str, ...], at_once: int, count: int, server_pid: int | None = None
) -> Took:
    """Raises SystemExit unless each of `source` is accepted."""
    outcomes = fleet.layout.home / "outcomes.jsonl"
    outcomes.unlink(missing_ok=True)
    words = ("--tenant", TENANT, "--at-once", str(at_once), "--outcomes", str(outcomes))
    before = Reading.now(fleet, server_pid)
    with _Appearing(outcomes) as appearing:
        done = fleet.console("adapters", "register-all", *source, *words, timeout_s=_PATIENCE_S)
    accepted_s, spent = time.monotonic() - appearing.at_s, between(before, Reading.now(fleet, server_pid))
    if done.returncode:
        raise SystemExit(done.stderr)
    _require_each(outcomes, count)
    return Took(
        count=count,
        began_s=appearing.at_s,
        accepted_s=accepted_s,
        spent=spent,
        progress=tuple(line for line in done.stderr.splitlines() if " of " in line),
    )


def until_active_s(fleet: TemporaryFleet, took: Took) -> float:
    """How long it took from the beginning until every adapter of the fleet was evaluated, too. Raises SystemExit if one
    has failed."""
    ledger = Ledger(fleet)
    while (found := ledger.statuses())["active"] < found.total():
        if (lost := found["failed"] + found["rejected"]) or time.monotonic() - took.began_s > _PATIENCE_S:
            raise SystemExit(f"{lost} adapters came to nothing: {dict(found)}")
        time.sleep(_LOOK_S)
    return time.monotonic() - took.began_s


def _require_each(outcomes: Path, count: int) -> None:
    """Raises SystemExit unless the file tells of so many adapters, of each once, and that it is in."""
    told = [msgspec.json.decode(line) for line in outcomes.read_bytes().splitlines()]
    ids = {one["adapter_id"] for one in told if one["result"] == "in"}
    if not len(ids) == len(told) == count:
        raise SystemExit(f"{count} were to be registered, {len(told)} outcomes tell of {len(ids)} that are in")
