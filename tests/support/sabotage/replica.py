"""`python -m tests.support.sabotage.replica`: a replica with the faults that LF_SABOTAGE names."""

from __future__ import annotations

import os

from services.replica_worker.__main__ import main
from shared.runtime.service import run_main
from tests.support.sabotage.faults import FAULTS

VARIABLE = "LF_SABOTAGE"


def plant() -> None:
    for name in os.environ[VARIABLE].split(","):
        FAULTS[name]()


if __name__ == "__main__":
    plant()
    run_main(main())
