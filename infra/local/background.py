"""The supervisor of a detached fleet: its output goes to the pipe it is given until it serves, then to a log."""

from __future__ import annotations

import os
import sys

from infra.local import commands
from infra.local.layout import Layout
from infra.local.settings import read_settings


def main(descriptor: int) -> int:
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    return commands.run_here(serving=_let_go)


def _let_go() -> None:
    """Close the pipe by putting the log in its place: whoever waits at its other end goes on."""
    log = Layout(read_settings(os.environ).home.resolve()).log("supervisor")
    sys.stdout.flush()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
