"""A registry that is killed in the middle of a batch, and one whose batch has no middle any more."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from infra.local.temporary import TemporaryFleet
from loadtest.registrations_run import Killing


class Fleet:
    """With so many adapters in."""

    def __init__(self, folder: Path, accepted: int) -> None:
        self.layout = SimpleNamespace(database=folder / "registry.db")
        self.killed: list[str] = []
        with closing(sqlite3.connect(self.layout.database)) as connection, connection:
            connection.execute("CREATE TABLE adapters (status TEXT)")
            connection.executemany("INSERT INTO adapters VALUES (?)", [("verified",)] * accepted)

    def kill(self, name: str) -> None:
        self.killed.append(name)


def test_a_batch_that_is_over_before_so_many_are_in_has_its_registry_left_alone(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 3)
    with Killing(cast(TemporaryFleet, fleet), 4) as killing:
        pass
    assert (fleet.killed, killing.seen) == ([], None)
