"""Where processes run that are measured, and those that are not."""

from __future__ import annotations

import os
import subprocess
import sys

from loadtest.gateway_bench.machine import on_core


def test_what_is_started_on_a_core_has_no_other_and_whoever_started_it_has_all_again() -> None:
    before, program = os.sched_getaffinity(0), "import os; print(os.sched_getaffinity(0))"
    with on_core(max(before)):
        told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert told.strip() == str({max(before)})
    assert os.sched_getaffinity(0) == before
