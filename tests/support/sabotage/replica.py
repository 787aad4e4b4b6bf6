"""`python -m tests.support.sabotage.replica`: a replica with the faults that LF_SABOTAGE names for it."""

from __future__ import annotations

import os

from services.replica_worker.__main__ import main
from shared.runtime.service import run_main
from tests.support.sabotage.faults import FAULTS

VARIABLE = "LF_SABOTAGE"


def plant() -> None:
    """`FAULT` is for every replica, `REPLICA:FAULT` for one."""
    own = os.environ["LORAFLEET_WORKER_REPLICA_ID"]
    for word in os.environ[VARIABLE].split(","):
        replica_id, _, name = word.rpartition(":")
        if replica_id in ("", own):
            FAULTS[name]()


if __name__ == "__main__":
    plant()
    run_main(main())
