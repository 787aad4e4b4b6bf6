"""Processors' time of a batch: of who took it, also if a registry was started in the middle."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from infra.local.temporary import TemporaryFleet
from loadtest.registrations_figures import processors
from loadtest.registrations_processors import Reading, Spent, between, process_s
from loadtest.registrations_run import Took

BURNS = "import time\nwhile time.process_time() < 0.2: pass"


def reading(registry_pid: int, **more: float | None) -> Reading:
    zero = {"registry_s": 0.0, "commands_s": 0.0, "server_s": 0.0, "busy_s": 0.0, "all_s": 0.0}
    return Reading(registry_pid=registry_pid, **{**zero, **more})  # type: ignore[arg-type]


def test_each_is_told_apart() -> None:
    before = reading(1, registry_s=5.0, commands_s=2.0, server_s=7.0, busy_s=100.0, all_s=400.0)
    after = reading(1, registry_s=9.0, commands_s=3.0, server_s=7.5, busy_s=115.0, all_s=420.0)
    spent = between(before, after)
    assert (spent.registry_s, spent.command_s, spent.server_s, spent.busy_share) == (4.0, 1.0, 0.5, 0.75)


def test_a_registry_that_was_started_meanwhile_has_used_all_of_its_time_since() -> None:
    assert between(reading(1, registry_s=500.0), reading(2, registry_s=9.0)).registry_s == 9.0


def test_a_store_without_a_server_has_none_that_used_anything() -> None:
    assert between(reading(1, server_s=None), reading(1, server_s=None)).server_s is None


def test_a_registration_is_told_what_both_registries_took_for_it() -> None:
    """The one that was killed and the one after it; of a folder nobody is told a server."""
    spent = Spent(registry_s=3.0, command_s=2.0, server_s=4.0, busy_share=0.5)
    took = Took(count=1000, began_s=0.0, accepted_s=10.0, spent=spent, progress=())
    told = {name: figure.value for name, figure in processors(took, 1.5).items()}
    assert told == {"registry_ms": 4.5, "command_ms": 2.0, "store_server_ms": 4.0, "processors_busy": 0.5}
    folder = msgspec.structs.replace(took, spent=msgspec.structs.replace(spent, server_s=None))
    assert "store_server_ms" not in processors(folder)
    assert processors(folder)["registry_ms"].value == 3.0


def test_the_systems_counters_are_read() -> None:
    fleet = cast(TemporaryFleet, SimpleNamespace(pid=lambda name: os.getpid()))
    before = Reading.now(fleet, os.getppid())
    subprocess.run([sys.executable, "-c", BURNS], check=True)
    after = Reading.now(fleet, os.getppid())
    spent = between(before, after)
    assert spent.command_s >= 0.2
    assert spent.registry_s == pytest.approx(after.registry_s - before.registry_s)
    assert after.busy_s - before.busy_s >= 0.1
    assert 0 < spent.busy_share <= 1
    with pytest.raises(FileNotFoundError):
        process_s(1 << 30)
