"""What `make bench-registrations` measures, part by part: each returns its figures."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from infra.adapters.random_adapter import write_random_adapter
from infra.local.temporary import TemporaryFleet, temporary_fleet
from loadtest.registrations_figures import processors, rate, share
from loadtest.registrations_made import Mould
from loadtest.registrations_model import RANK, write_heavy_base
from loadtest.registrations_run import TENANT, Killing, Ledger, Took, run_batch, until_active_s
from loadtest.registry_store import GBIT_BYTES_PER_S, OBJECT_STORE_BYTES_PER_S, Stage, folder_stage, s3_stage
from loadtest.report import Figure

_SHARE = ">= 0.5"
"""Of what the store alone takes: what a batch is to come in with, where bytes are the bound."""
_ALONE = 256
"""Of many, so many tell how fast the store alone is."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    model: Path
    parts: tuple[str, ...]
    at_once: int
    tiny: int
    heavy: int
    heavy_bytes: int
    many: int
    many_bytes: int


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
        return run_batch(self.fleet, source, self.at_once, count, self.stage.server_pid)


def tiny(wish: Wish) -> dict[str, Figure]:
    with _bench(wish, wish.model, 1) as bench:
        return {**_sent(bench, wish.tiny, None, again=True), **_named(bench, wish.tiny, None, again=True)}


def heavy(wish: Wish, stage: Stage | None = None) -> dict[str, Figure]:
    with tempfile.TemporaryDirectory(prefix="lorafleet-base-") as folder:
        base = write_heavy_base(wish.model, Path(folder) / "heavy", wish.heavy_bytes)
        with _bench(wish, base, RANK, stage) as bench:
            figures = _sent(bench, wish.heavy, _SHARE)
            shutil.rmtree(bench.place / "sent")
            figures |= _named(bench, wish.heavy, _SHARE)
            return {"adapter_mb": Figure(value=round(bench.mould.size_bytes / 1e6, 1), unit="MB"), **figures}


def heavy_s3(wish: Wish) -> dict[str, Figure]:
    with s3_stage() as stage:
        return heavy(wish, stage)


def restart(wish: Wish) -> dict[str, Figure]:
    with _bench(wish, wish.model, 1) as bench:
        return _killed(bench, wish.many)


def restart_s3(wish: Wish, bytes_per_s: int = OBJECT_STORE_BYTES_PER_S) -> dict[str, Figure]:
    with s3_stage(bytes_per_s) as stage, tempfile.TemporaryDirectory(prefix="lorafleet-base-") as folder:
        base = write_heavy_base(wish.model, Path(folder) / "heavy", wish.many_bytes)
        with _bench(wish, base, RANK, stage) as bench:
            before_s = bench.alone_s(range(_ALONE))
            figures = _killed(bench, wish.many)
        after_s = bench.alone_s(range(_ALONE))  # the fleet is gone: it would evaluate, and read its store, for long yet
        alone = 2 * _ALONE / (before_s + after_s)
        return {
            "adapter_mb": Figure(value=round(bench.mould.size_bytes / 1e6, 1), unit="MB"),
            "store_alone_before_per_s": rate(_ALONE / before_s),
            "store_alone_after_per_s": rate(_ALONE / after_s),
            "share_of_store": share(figures["accepted_per_s"].value, alone, _SHARE),
            **figures,
        }


def restart_s3_gbit(wish: Wish) -> dict[str, Figure]:
    return restart_s3(wish, GBIT_BYTES_PER_S)


def _killed(bench: Bench, many: int) -> dict[str, Figure]:
    source = bench.sent(range(many))
    with Killing(bench.fleet, many // 2) as killing:
        took = bench.run(source, many)
    print(*took.progress, sep="\n", flush=True)
    if killing.seen is None:
        raise SystemExit("the batch was over before the registry was killed")
    return {
        "accepted_once": Figure(value=Ledger(bench.fleet).accepted_once(), unit="adapters", target=f">= {many}"),
        "accepted_at_kill": Figure(value=killing.seen.accepted, unit="adapters"),
        "until_next_accepted_s": Figure(value=round(killing.seen.away_s, 2), unit="s"),
        "progress_lines": Figure(value=len(took.progress), unit=""),
        "accepted_per_s": rate(took.count / took.accepted_s),
        **processors(took, killing.seen.registry_s),
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
        f"{way}.store_alone_before_per_s": rate(took.count / before_s),
        f"{way}.store_alone_after_per_s": rate(took.count / after_s),
        f"{way}.accepted_per_s": rate(took.count / took.accepted_s),
        f"{way}.active_per_s": rate(took.count / active_s),
        f"{way}.share_of_store": share(took.count / took.accepted_s, alone, target),
        f"{way}.active_share_of_store": share(took.count / active_s, alone, None),
        **{f"{way}.{name}": figure for name, figure in processors(took).items()},
    }
    if again:
        known = bench.run(source, len(numbers))
        figures[f"{way}.known_per_s"] = rate(known.count / known.accepted_s)
    return figures


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
