"""What a batch takes of the processors, and who takes it: whether they or the store were the bound."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Self

import msgspec

from infra.local.temporary import TemporaryFleet

_TICKS = os.sysconf("SC_CLK_TCK")
_IDLE = slice(3, 5)
"""Among the first eight numbers of /proc/stat: idle, and idle while a disk is waited for (proc(5))."""


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of a processor: by the registry that runs at the end, by the command from its start on, and by the server
    of the store, None if it has none. `busy_share` of all processors were in use by anybody, 0 to 1."""

    registry_s: float
    command_s: float
    server_s: float | None
    busy_share: float


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """Of all counters at one moment."""

    registry_pid: int
    registry_s: float
    commands_s: float
    server_s: float | None
    busy_s: float
    all_s: float

    @classmethod
    def now(cls, fleet: TemporaryFleet, server_pid: int | None) -> Self:
        used, registry_pid = resource.getrusage(resource.RUSAGE_CHILDREN), fleet.pid("registry")
        busy_s, all_s = _machine_s()
        return cls(
            registry_pid=registry_pid,
            registry_s=process_s(registry_pid),
            commands_s=used.ru_utime + used.ru_stime,
            server_s=None if server_pid is None else process_s(server_pid),
            busy_s=busy_s,
            all_s=all_s,
        )


def between(before: Reading, after: Reading) -> Spent:
    """A registry that was started meanwhile has used nothing before."""
    same = before.registry_pid == after.registry_pid
    return Spent(
        registry_s=after.registry_s - (before.registry_s if same else 0.0),
        command_s=after.commands_s - before.commands_s,
        server_s=None if before.server_s is None or after.server_s is None else after.server_s - before.server_s,
        busy_share=(after.busy_s - before.busy_s) / max(after.all_s - before.all_s, 1 / _TICKS),
    )


def process_s(pid: int) -> float:
    """What a process has used so far. Raises OSError if there is none."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _machine_s() -> tuple[float, float]:
    """All processors together: in use, and all there was, since the system started."""
    first = Path("/proc/stat").read_text().partition("\n")[0]
    numbers = [int(word) for word in first.split()[1:9]]
    return (sum(numbers) - sum(numbers[_IDLE])) / _TICKS, sum(numbers) / _TICKS
