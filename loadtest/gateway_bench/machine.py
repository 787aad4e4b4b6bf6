"""Processes under measurement: what they take of a processor and of memory, and what others take meanwhile."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from infra.local.child import Child

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PREFERRED = -15
_IDLE = (3, 4)
"""In a line of /proc/stat: idle, and waiting for a disk."""


class Cores(msgspec.Struct, frozen=True):
    """Where what is measured runs, and where everything else does."""

    measured: int
    others: int


def chosen_cores() -> Cores:
    mine = sorted(os.sched_getaffinity(0))
    return Cores(measured=mine[-1], others=mine[0])


def pinned(core: int | None, argv: Sequence[str]) -> list[str]:
    return list(argv) if core is None else ["taskset", "-c", str(core), *argv]


def tree(pid: int) -> Iterator[int]:
    """A process and all that descend from it."""
    yield pid
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from tree(int(child))


def cpu_s(pids: Sequence[int]) -> float:
    """What these processes and their children have had of processors so far; who has ended counts nothing."""
    total_ns = 0
    for pid in (each for root in pids for each in tree(root)):
        with suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                total_ns += int((task / "schedstat").read_text().split()[0])
    return total_ns / 1e9


def rss_bytes(pids: Sequence[int]) -> int:
    total = 0
    for pid in (each for root in pids for each in tree(root)):
        with suppress(OSError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    return total


def busy_s() -> float:
    """Of all processors together."""
    first = Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]
    return sum(int(ticks) for at, ticks in enumerate(first) if at not in _IDLE) / _TICKS_PER_S


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """At one moment, by the names of process groups."""

    at_s: float
    cpu_s: Mapping[str, float]
    busy_s: float


def read(groups: Mapping[str, Sequence[int]]) -> Reading:
    return Reading(at_s=time.monotonic(), cpu_s={name: cpu_s(pids) for name, pids in groups.items()}, busy_s=busy_s())


async def until_quiet(most_s: float, share: float = 0.15) -> None:
    """Returns when nobody takes more than this share of a processor, or after `most_s`."""
    ends_s = time.monotonic() + most_s
    while time.monotonic() < ends_s:
        before = busy_s()
        await asyncio.sleep(0.5)
        if (busy_s() - before) / 0.5 < share:
            return


def prefer(pids: Sequence[int]) -> None:
    """Let what else runs on this machine have only what these sessions leave, where that is allowed: the kernel shares
    processors between sessions first, so that a nice value alone says nothing to another session."""
    for pid in pids:
        with suppress(OSError):
            Path(f"/proc/{pid}/autogroup").write_text(str(_PREFERRED))


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """What is started here runs on this core only, and knows from its start that it has no other."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def put_first(pids: Sequence[int]) -> None:
    """Nobody else runs while one of these processes, or of their children, wants to: among themselves they take turns.
    Raises PermissionError."""
    for pid in (each for root in pids for each in tree(root)):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(ProcessLookupError):
                os.sched_setscheduler(int(task.name), os.SCHED_RR, os.sched_param(1))


class Running(Child):
    """A child that is asked now and then whether it still is one."""

    def exited(self) -> bool:
        return self.exit_code() is not None


def started(
    name: str, argv: Sequence[str], core: int | None, folder: Path, env: Mapping[str, str] | None = None
) -> Running:
    """A child on this core, if one is named, whose words are in `folder`. Raises OSError."""
    child = Running(name, pinned(core, argv), {**os.environ, **(env or {})}, folder / f"{name}.log")
    child.start()
    prefer([child.pid])
    return child
