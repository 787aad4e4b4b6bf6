"""A registry that is killed in the middle of a batch, and one whose batch has no middle any more."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from infra.local.temporary import TemporaryFleet
from loadtest.registrations_processors import process_s
from loadtest.registrations_run import Killing
from tests.support.waiting import eventually


class Fleet:
    """With so many adapters in."""

    def __init__(self, folder: Path, accepted: int) -> None:
        self.layout = SimpleNamespace(database=folder / "registry.db")
        self.killed: list[str] = []
        with closing(sqlite3.connect(self.layout.database)) as connection, connection:
            connection.execute("CREATE TABLE adapters (status TEXT)")
            connection.executemany("INSERT INTO adapters VALUES (?)", [("verified",)] * accepted)

    def add(self) -> None:
        with closing(sqlite3.connect(self.layout.database)) as connection, connection:
            connection.execute("INSERT INTO adapters VALUES ('verified')")

    def pid(self, name: str) -> int:
        return os.getpid()

    def kill(self, name: str) -> None:
        self.killed.append(name)


def test_a_batch_that_is_over_before_so_many_are_in_has_its_registry_left_alone(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 3)
    with Killing(cast(TemporaryFleet, fleet), 4) as killing:
        pass
    assert (fleet.killed, killing.seen) == ([], None)


def test_what_a_killed_registry_had_used_since_the_batch_began_is_known(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 3)
    with Killing(cast(TemporaryFleet, fleet), 4) as killing:
        began_s = time.process_time()
        while time.process_time() < began_s + 0.1:
            pass
        fleet.add()
        eventually(lambda: fleet.killed, "the registry to be killed")
        fleet.add()
        seen = eventually(lambda: killing.seen, "the next one to be seen")
    assert seen is not None
    assert seen.accepted == 4
    assert 0.05 <= seen.registry_s <= process_s(os.getpid())
