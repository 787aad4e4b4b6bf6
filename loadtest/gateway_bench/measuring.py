"""One run of the load client in front of one door."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from loadtest.gateway_bench.machine import Cores, Reading, pinned, prefer, put_first, read, rss_bytes, until_quiet
from loadtest.gateway_bench.scenarios import Scenario


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """What the client says in the end: all of the time between its warm-up and its end."""

    added_ttft_ms: Spread
    ttft_ms: Spread
    relay_ms: Spread
    took_s: float
    completed: int
    failed: int
    first_failed_status: int
    """Of an answer; 1 without one, 200 for one that was not whole."""
    tokens: int
    unconnected: int
    most_streams: int
    under_way: int


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """`cpu_s` and `rss_bytes` are by process group, what the client took included; `noise_share` is what processes
    that have no part in this took of all processors, in processors."""

    scenario: str
    heard: Heard
    cpu_s: Mapping[str, float]
    rss_bytes: Mapping[str, int]
    noise_share: float

    @property
    def tokens_per_s(self) -> float:
        return self.heard.tokens / self.heard.took_s

    @property
    def requests_per_s(self) -> float:
        return self.heard.completed / self.heard.took_s


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """What clients speak to. `groups` are the processes that take part, by what they are called in the report."""

    ports: tuple[int, ...]
    header: str
    groups: Mapping[str, Sequence[int]]


class Client(msgspec.Struct, frozen=True, kw_only=True):
    program: Path
    models: Path
    """A file with the names that it asks for."""
    cores: Cores
    realtime: bool = False
    """Whether all that takes part goes before everything else on this machine."""

    def argv(self, door: Door, scenario: Scenario) -> list[str]:
        where = ["--ports", ",".join(map(str, door.ports)), "--header", door.header, "--models", str(self.models)]
        return pinned(self.cores.others, [str(self.program), *where, *scenario.words()])


async def measure(client: Client, door: Door, scenario: Scenario, quiet_s: float) -> Sample:
    """Raises RuntimeError if the client said nothing."""
    await until_quiet(quiet_s)
    process = await asyncio.create_subprocess_exec(
        *client.argv(door, scenario), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None, "it was asked for"
    assert process.stdout is not None, "it was asked for"
    groups = {**door.groups, "client": [process.pid]}
    (put_first if client.realtime else prefer)([pid for pids in groups.values() for pid in pids])
    try:
        await _line(process.stdout, "begin")
        before = read(groups)
        await _line(process.stdout, "end")
        after = read(groups)
        rss = {name: rss_bytes(pids) for name, pids in door.groups.items()}
        heard = msgspec.json.decode(await process.stdout.readline(), type=Heard)
    finally:
        process.stdin.close()
        await process.wait()
    return sample(scenario.name, heard, (before, after), rss)


def sample(name: str, heard: Heard, readings: tuple[Reading, Reading], rss: Mapping[str, int]) -> Sample:
    before, after = readings
    took_s = after.at_s - before.at_s
    spent_s = {group: after.cpu_s[group] - before.cpu_s[group] for group in after.cpu_s}
    others_s = after.busy_s - before.busy_s - sum(spent_s.values())
    return Sample(
        scenario=name, heard=heard, cpu_s=spent_s, rss_bytes=rss, noise_share=max(0.0, others_s / took_s)
    )  # fmt: skip


async def _line(lines: asyncio.StreamReader, wanted: str) -> None:
    said = (await lines.readline()).decode().strip()
    if said != wanted:
        raise RuntimeError(f"the load client said {said!r} where {wanted!r} was due")
