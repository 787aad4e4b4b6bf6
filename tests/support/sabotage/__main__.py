"""`python -m tests.support.sabotage [REPLICA:]FAULT …`: the embedded fleet in the foreground, with faulty replicas."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

from infra.local import up
from infra.local.commands import run_here
from infra.local.fleet import FleetInputs, ProcessSpec, processes
from tests.support.sabotage.faults import FAULTS
from tests.support.sabotage.replica import VARIABLE

SERVES = "serves"
"""The last line before the fleet is left alone: it has answered a request."""


def _with_faults(inputs: FleetInputs) -> tuple[ProcessSpec, ...]:
    faulty = "tests.support.sabotage.replica"
    return tuple(
        replace(spec, module=faulty) if spec.module == "services.replica_worker" else spec for spec in processes(inputs)
    )


def main(names: list[str]) -> int:
    if not names or (unknown := [name for name in names if name.rpartition(":")[2] not in FAULTS]):
        sys.stderr.write(f"the faults are {', '.join(FAULTS)}, not {unknown if names else 'none'}\n")
        return 2
    os.environ[VARIABLE] = ",".join(names)
    up.processes = _with_faults
    return run_here(lambda: print(SERVES, flush=True))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
