"""`make bench-registrations`: how fast batches come in, with the real processes and SQLite, into
reports/registrations.json.

Tiny adapters weigh nothing, so what is around them is measured. Heavy ones are as large as a 7B model's:
there the store is the bound, a folder on this machine, and then a real S3 server (rclone) that is held to the 200 MB/s
of the specification. Many are registered over a registry that is killed in the middle: tiny ones, and then as large as
a small model's, into such a server, and into one behind a link of about 1 Gbit/s. What a registration takes of the
processors is stated by who takes it, and how busy all of them were: it tells whether they or the store were the bound.
Adapters are sent as uploads, or named by their addresses where the registry reads them itself; beside either stands
what the store alone takes of the same bytes at the same place, as many at once: the mean of just before and just after.
Whatever is timed begins with nothing left to be written and ends when its objects are on the disk; but for the many, it
reads files that are still in memory. What a part measured stays in the report until it runs again.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from loadtest.registrations_made import MOST
from loadtest.registrations_parts import Wish, heavy, heavy_s3, restart, restart_s3, restart_s3_gbit, tiny
from loadtest.registry_store import GBIT_BYTES_PER_S, OBJECT_STORE_BYTES_PER_S
from loadtest.report import REPORTS, Figure, read_report, write_report

_NAME = "registrations"
_MIB = 1 << 20
_RUNS: Mapping[str, Callable[[Wish], dict[str, Figure]]] = {
    "tiny": tiny,
    "heavy": heavy,
    "heavy_s3": heavy_s3,
    "restart": restart,
    "restart_s3": restart_s3,
    "restart_s3_gbit": restart_s3_gbit,
}


def main() -> None:
    wish = _wish()
    for part in wish.parts:
        figures = {f"{part}.{name}": figure for name, figure in _RUNS[part](wish).items()}
        for name, figure in figures.items():
            print(f"{name}: {figure}", flush=True)
        print(f"written: {_keep(part, figures, _condition(part, wish))}", flush=True)


def _wish() -> Wish:
    words = argparse.ArgumentParser(description="Registrations a second of an embedded fleet.")
    words.add_argument("--model", type=Path, required=True, help="a base model's folder; the smaller, the better")
    words.add_argument("--parts", default=",".join(_RUNS), help="which of them to run")
    words.add_argument("--at-once", type=int, default=16)
    words.add_argument("--tiny", type=int, default=500, metavar="COUNT")
    words.add_argument("--heavy", type=int, default=32, metavar="COUNT")
    words.add_argument("--heavy-mib", type=int, default=80, help="what one of them weighs")
    words.add_argument("--many", type=int, default=5000, metavar="COUNT", help="over a restart")
    words.add_argument("--many-mib", type=int, default=4, help="what one of those weighs that go into an S3 server")
    told = words.parse_args()
    if max(2 * told.tiny, 2 * told.heavy, told.many) > MOST:
        words.error(f"there are only {MOST} different adapters")
    return Wish(
        model=told.model,
        parts=tuple(told.parts.split(",")),
        at_once=told.at_once,
        tiny=told.tiny,
        heavy=told.heavy,
        heavy_bytes=told.heavy_mib * _MIB,
        many=told.many,
        many_bytes=told.many_mib * _MIB,
    )


def _condition(part: str, wish: Wish) -> str:
    restarts = part.startswith("restart")
    count = wish.many if restarts else wish.tiny if part == "tiny" else wish.heavy
    ways = "over a killed registry" if restarts else "each way"
    link = GBIT_BYTES_PER_S if part.endswith("_gbit") else OBJECT_STORE_BYTES_PER_S
    where = f", an S3 server held to {link / 1e6:.0f} MB/s beside it" if "_s3" in part else ""
    return f"{count} adapters {ways}, {wish.at_once} at once, one replica on the same machine{where}"


def _keep(part: str, figures: Mapping[str, Figure], condition: str) -> Path:
    """Beside what the other parts measured before."""
    before, conditions = dict[str, Figure](), dict[str, str]()
    if (REPORTS / f"{_NAME}.json").exists():
        report = read_report(_NAME)
        before = {name: figure for name, figure in report.figures.items() if not name.startswith(f"{part}.")}
        conditions = report.conditions
    kept = {name: figure for name, figure in before.items() if name.partition(".")[0] in _RUNS}
    said = {name: words for name, words in conditions.items() if name in _RUNS}
    return write_report(_NAME, {**kept, **figures}, conditions={**said, part: condition})


if __name__ == "__main__":
    main()
