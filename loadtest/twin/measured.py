"""A timing that was measured, with what it was measured on: what `make calibrate` writes and the twin reads."""

from __future__ import annotations

from pathlib import Path

import msgspec

from loadtest.twin.scenario import Scenario
from loadtest.twin.sequence import BatchShape
from loadtest.twin.timing import Timing


class NoTiming(ValueError):
    """The file is no timing that was measured; the text says why."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """`restart_s` is how long a replica is gone that was killed. `conditions` say what was measured and how well."""

    timing: Timing
    batch: BatchShape = BatchShape()
    restart_s: float = 0.0
    conditions: dict[str, str] = {}


def read_measured(path: Path) -> Measured:
    """Raises NoTiming."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Measured)
    except (OSError, msgspec.MsgspecError) as error:
        raise NoTiming(f"{path} is no timing: {error}") from error


def write_measured(measured: Measured, path: Path) -> Path:
    """Replaces the file. Raises OSError; the old one is kept then."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(measured), indent=2) + b"\n")
    return fresh.replace(path)


def played_with(scenario: Scenario, measured: Measured) -> Scenario:
    """The same fleet and traffic on replicas as measured."""
    pools = tuple(msgspec.structs.replace(pool, batch=measured.batch) for pool in scenario.pools)
    return msgspec.structs.replace(scenario, timing=measured.timing, pools=pools)
