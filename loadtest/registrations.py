"""`make bench-registrations`: how fast batches come in, with the real processes and SQLite, into
reports/registrations.json.

Four parts. Tiny adapters weigh nothing, so what is around them is measured. Heavy ones are as large as a 7B model's:
there the store is the bound, a folder on this machine, and then a real S3 server (rclone) that is held to the 200 MB/s
of the specification. Many are registered over a registry that is killed in the middle. Adapters are sent as
uploads, or named by their addresses where the registry reads them itself; beside either stands what the store alone
takes of the same bytes at the same place, as many at once: the mean of just before and just after. Whatever is timed
begins with nothing left to be written, reads files that are still in memory, and ends when its objects are on the disk.
What a part measured stays in the report until it runs again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from infra.adapters.random_adapter import write_random_adapter
from infra.local.temporary import TemporaryFleet, temporary_fleet
from loadtest.registrations_made import MOST, Mould
from loadtest.registrations_model import RANK, write_heavy_base
from loadtest.registrations_run import TENANT, Killing, Ledger, Took, run_batch, until_active_s
from loadtest.registry_store import Stage, folder_stage, s3_stage
from loadtest.report import REPORTS, Figure, read_report, write_report

_NAME = "registrations"
_SHARE = ">= 0.5"
"""Of what the store alone takes: what a batch is to come in with, where bytes are the bound."""
_MIB = 1 << 20
_PARTS = ("tiny", "heavy", "heavy_s3", "restart")


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    model: Path
    parts: tuple[str, ...]
    at_once: int
    tiny: int
    heavy: int
    heavy_bytes: int
    many: int


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet, and what its adapters are cast from."""

    fleet: TemporaryFleet
    stage: Stage
    mould: Mould
    base_model_hash: str
    place: Path
    at_once: int

    def sent(self, numbers: range) -> tuple[str, ...]:
        """What a command is told of folders that are to be uploaded."""
        folder = self.place / "sent"
        self.mould.fill(folder, numbers)
        return (str(folder),)

    def named(self, numbers: range) -> tuple[str, ...]:
        """The same of addresses where the registry finds them."""
        folder, listed = self.fleet.layout.inbox / "named", self.place / "listed"
        self.mould.fill(folder, numbers)
        same = {"tenant_id": TENANT, "base_model_hash": self.base_model_hash}
        listed.write_bytes(self.mould.announcements(folder, numbers, same))
        return ("--from", str(listed))

    def alone_s(self, numbers: range) -> float:
        took_s = self.stage.alone_s([self.mould.file(number) for number in numbers], self.at_once)
        os.sync()
        return took_s

    def run(self, source: tuple[str, ...], count: int) -> Took:
        return run_batch(self.fleet, source, self.at_once, count)


def main() -> None:
    wish = _wish()
    measuring = (_tiny, _heavy, _heavy_s3, _restart)
    runs: Mapping[str, Callable[[Wish], dict[str, Figure]]] = dict(zip(_PARTS, measuring, strict=True))
    for part in wish.parts:
        figures = {f"{part}.{name}": figure for name, figure in runs[part](wish).items()}
        for name, figure in figures.items():
            print(f"{name}: {figure}", flush=True)
        print(f"written: {_keep(part, figures, _condition(part, wish))}", flush=True)


def _wish() -> Wish:
    words = argparse.ArgumentParser(description="Registrations a second of an embedded fleet.")
    words.add_argument("--model", type=Path, required=True, help="a base model's folder; the smaller, the better")
    words.add_argument("--parts", default=",".join(_PARTS), help="which of them to run")
    words.add_argument("--at-once", type=int, default=16)
    words.add_argument("--tiny", type=int, default=500, metavar="COUNT")
    words.add_argument("--heavy", type=int, default=32, metavar="COUNT")
    words.add_argument("--heavy-mib", type=int, default=80, help="what one of them weighs")
    words.add_argument("--many", type=int, default=5000, metavar="COUNT", help="over a restart")
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
    )


def _tiny(wish: Wish) -> dict[str, Figure]:
    with _bench(wish, wish.model, 1) as bench:
        return {**_sent(bench, wish.tiny, None, again=True), **_named(bench, wish.tiny, None, again=True)}


def _heavy(wish: Wish, stage: Stage | None = None) -> dict[str, Figure]:
    with tempfile.TemporaryDirectory(prefix="lorafleet-base-") as folder:
        base = write_heavy_base(wish.model, Path(folder) / "heavy", wish.heavy_bytes)
        with _bench(wish, base, RANK, stage) as bench:
            figures = _sent(bench, wish.heavy, _SHARE)
            shutil.rmtree(bench.place / "sent")
            figures |= _named(bench, wish.heavy, _SHARE)
            return {"adapter_mb": Figure(value=round(bench.mould.size_bytes / 1e6, 1), unit="MB"), **figures}


def _heavy_s3(wish: Wish) -> dict[str, Figure]:
    with s3_stage() as stage:
        return _heavy(wish, stage)


def _restart(wish: Wish) -> dict[str, Figure]:
    with _bench(wish, wish.model, 1) as bench:
        source = bench.sent(range(wish.many))
        with Killing(bench.fleet, wish.many // 2) as killing:
            took = bench.run(source, wish.many)
        print(*took.progress, sep="\n", flush=True)
        if killing.seen is None:
            raise SystemExit("the batch was over before the registry was killed")
        once = Ledger(bench.fleet).accepted_once()
        return {
            "accepted_once": Figure(value=once, unit="adapters", target=f">= {wish.many}"),
            "accepted_at_kill": Figure(value=killing.seen.accepted, unit="adapters"),
            "until_next_accepted_s": Figure(value=round(killing.seen.away_s, 2), unit="s"),
            "progress_lines": Figure(value=len(took.progress), unit=""),
            "accepted_per_s": _rate(took.count / took.accepted_s),
        }


def _sent(bench: Bench, count: int, target: str | None, *, again: bool = False) -> dict[str, Figure]:
    return _measured(bench, "uploads", bench.sent(range(count)), (range(count), target, again))


def _named(bench: Bench, count: int, target: str | None, *, again: bool = False) -> dict[str, Figure]:
    numbers = range(count, 2 * count)
    return _measured(bench, "addresses", bench.named(numbers), (numbers, target, again))


def _measured(
    bench: Bench, way: str, source: tuple[str, ...], plan: tuple[range, str | None, bool]
) -> dict[str, Figure]:
    numbers, target, again = plan
    before_s = bench.alone_s(numbers)
    took = bench.run(source, len(numbers))
    active_s = until_active_s(bench.fleet, took)
    after_s = bench.alone_s(numbers)
    alone = 2 * took.count / (before_s + after_s)
    figures = {
        f"{way}.store_alone_before_per_s": _rate(took.count / before_s),
        f"{way}.store_alone_after_per_s": _rate(took.count / after_s),
        f"{way}.accepted_per_s": _rate(took.count / took.accepted_s),
        f"{way}.active_per_s": _rate(took.count / active_s),
        f"{way}.share_of_store": _share(took.count / took.accepted_s, alone, target),
        f"{way}.active_share_of_store": _share(took.count / active_s, alone, None),
        f"{way}.registry_ms": Figure(value=round(took.registry_s / took.count * 1000, 2), unit="ms of a processor"),
    }
    if again:
        known = bench.run(source, len(numbers))
        figures[f"{way}.known_per_s"] = _rate(known.count / known.accepted_s)
    return figures


def _rate(per_s: float) -> Figure:
    return Figure(value=round(per_s, 2), unit="a second")


def _share(per_s: float, alone_per_s: float, target: str | None) -> Figure:
    return Figure(value=round(per_s / alone_per_s, 3), unit="", target=target)


@contextmanager
def _bench(wish: Wish, model: Path, rank: int, stage: Stage | None = None) -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="lorafleet-registrations-") as folder:
        place = Path(folder)
        stage = stage or folder_stage(place)
        mould = Mould(write_random_adapter(model, place / "first", rank, 0))
        terms = {"model": str(model), "demo": "false", "replicas": "1", "slots": "2", "rank_limit": str(max(rank, 16))}
        with temporary_fleet(place / "fleet", **terms, **stage.terms) as fleet:
            fleet.console("tenants", "create", TENANT)
            [base] = msgspec.json.decode(fleet.console("bases", "list", "--json").stdout)
            yield Bench(
                fleet=fleet,
                stage=stage,
                mould=mould,
                base_model_hash=base["base_model_hash"],
                place=place,
                at_once=wish.at_once,
            )


def _condition(part: str, wish: Wish) -> str:
    count = dict(zip(_PARTS, (wish.tiny, wish.heavy, wish.heavy, wish.many), strict=True))[part]
    where = ", an S3 server held to 200 MB/s beside it" if part == "heavy_s3" else ""
    return f"{count} adapters each way, {wish.at_once} at once, one replica on the same machine{where}"


def _keep(part: str, figures: Mapping[str, Figure], condition: str) -> Path:
    """Beside what the other parts measured before."""
    before, conditions = dict[str, Figure](), dict[str, str]()
    if (REPORTS / f"{_NAME}.json").exists():
        report = read_report(_NAME)
        before = {name: figure for name, figure in report.figures.items() if not name.startswith(f"{part}.")}
        conditions = report.conditions
    kept = {name: figure for name, figure in before.items() if name.partition(".")[0] in _PARTS}
    said = {name: words for name, words in conditions.items() if name in _PARTS}
    return write_report(_NAME, {**kept, **figures}, conditions={**said, part: condition})


if __name__ == "__main__":
    main()
