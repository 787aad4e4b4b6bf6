"""Measured figures in `reports/<name>.json`, and which of them fall short: `make targets`."""

from __future__ import annotations

import math
import os
import platform
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from operator import ge, gt, le, lt
from pathlib import Path

import msgspec

REPORTS = Path(__file__).parent.parent / "reports"
_TARGET = re.compile(r"(<=|>=|<|>) *(-?[0-9.]+(?:e-?[0-9]+)?)")
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {"<=": le, ">=": ge, "<": lt, ">": gt}


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One measured value, None if there was nothing to measure. `target` reads like `<= 1.0`; without one
    there is nothing to meet."""

    value: float | None
    unit: str
    target: str | None = None

    def __post_init__(self) -> None:
        if self.target is not None and not _TARGET.fullmatch(self.target):
            raise ValueError(f"a target is a comparison such as '<= 1.0', not {self.target!r}")

    @property
    def met(self) -> bool | None:
        """Whether the value meets its target: None without a target, False without a finite value."""
        if self.target is None:
            return None
        if self.value is None or not math.isfinite(self.value):
            return False
        comparison, bound = _TARGET.fullmatch(self.target).groups()  # type: ignore[union-attr]  # checked when made
        return _COMPARE[comparison](self.value, float(bound))

    def __str__(self) -> str:
        return "not measured" if self.value is None else f"{self.value:g} {self.unit}".rstrip()


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What one benchmark found on one machine; `name` is the file's. `conditions` says what it ran with."""

    name: str
    commit: str
    date: str
    machine: str
    figures: dict[str, Figure]
    conditions: dict[str, str] = {}


def write_report(
    name: str, figures: Mapping[str, Figure], folder: Path = REPORTS, conditions: Mapping[str, str] | None = None
) -> Path:
    """Replace `<folder>/<name>.json` and return its path. Raises OSError; the old report is kept then."""
    said = {
        "commit": _commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": _machine(),
        **({"conditions": conditions} if conditions else {}),
        "figures": {key: {**msgspec.structs.asdict(figure), "met": figure.met} for key, figure in figures.items()},
    }
    folder.mkdir(parents=True, exist_ok=True)
    path, fresh = folder / f"{name}.json", folder / f".{name}.json"
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(said), indent=2) + b"\n")
    return fresh.replace(path)


def read_reports(folder: Path = REPORTS) -> list[Report]:
    """Every report in the folder, in order of name. Raises ValueError naming a file that is none."""
    return [_read(path) for path in sorted(folder.glob("[!.]*.json"))]


def read_report(name: str, folder: Path = REPORTS) -> Report:
    """The last report of this name. Raises OSError if there is none, ValueError naming a file that is none."""
    return _read(folder / f"{name}.json")


def table(figures: Mapping[str, Figure]) -> str:
    """The figures for people: a line each with value, target, and whether it is met."""
    met = {True: "met", False: "SHORT", None: ""}
    rows = [(name, str(figure), figure.target or "", met[figure.met]) for name, figure in figures.items()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def shortfalls(reports: Sequence[Report]) -> list[str]:
    """One line for every figure that does not meet its target."""
    return [
        f"{report.name}  {name}  {figure}, target {figure.target}"
        for report in reports
        for name, figure in report.figures.items()
        if figure.met is False
    ]


def _read(path: Path) -> Report:
    try:
        said = msgspec.json.decode(path.read_bytes())
        return msgspec.convert({**said, "name": path.stem}, Report)
    except (TypeError, msgspec.MsgspecError) as error:
        raise ValueError(f"{path} is no report: {error}") from error


def _commit() -> str:
    asked = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    told = subprocess.run(asked, cwd=REPORTS.parent, capture_output=True, text=True, check=False)
    return told.stdout.strip() or "unknown"


def _machine() -> str:
    """Processor, cores and memory: what a figure depends on, and nothing that names the machine."""
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return f"{_processor()}, {os.cpu_count()} cores, {memory_bytes / (1 << 30):.0f} GiB"


def _processor() -> str:
    try:
        told = Path("/proc/cpuinfo").read_text()
    except OSError:
        told = ""
    named = re.search(r"^model name\s*: (.+)$", told, re.MULTILINE)
    return named[1] if named else platform.machine()


def main() -> None:
    reports = read_reports()
    short = shortfalls(reports)
    aimed = sum(figure.target is not None for report in reports for figure in report.figures.values())
    if not reports:
        print("no reports yet: `make bench` writes one")
    elif short:
        print(*short, sep="\n")
    print(f"{len(short)} of {aimed} figures with a target fall short")


if __name__ == "__main__":
    main()
