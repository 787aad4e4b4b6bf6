"""The same canaries on a fleet that has a fault in it: the judge must see it, or it proves nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from infra.local.layout import Layout
from infra.local.temporary import FleetDidNotStart, TemporaryFleet, environment

SERVES = "serves"
"""The line that a module of faults prints once its fleet has answered a request."""
_STOP_DEADLINE_S = 60.0


@contextmanager
def planted_fleet(
    home: Path, settings: Mapping[str, str], module: str, faults: Sequence[str]
) -> Iterator[TemporaryFleet]:
    """`python -m MODULE FAULT …` starts the fleet of `home` as `lorafleet up` would. Raises FleetDidNotStart."""
    environ = environment(home, **settings)
    argv = [sys.executable, "-m", module, *faults]
    with subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            said = _until_it_serves(process)
            yield TemporaryFleet(Layout(home), environ, said)
        finally:
            process.terminate()
            try:
                process.communicate(timeout=_STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()  # else its end would be waited for without one
                raise


def _until_it_serves(process: subprocess.Popen[str]) -> str:
    said = []
    assert process.stdout is not None
    for line in process.stdout:
        said.append(line)
        if line.strip() == SERVES:
            return "".join(said)
    raise FleetDidNotStart("".join(said))
