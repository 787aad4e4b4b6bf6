"""The `lorafleet` command: wires arguments, connection and command together."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.local.connection import NotConfigured, find_connection
from services.console.arguments import parser
from services.console.commands.output import Output
from services.console.core.outcome import INTERRUPTED, OK, UNREACHABLE
from services.console.io.admin import Admin, CommandFailed
from services.console.io.chat import Door


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code (services/console/core/outcome.py lists them)."""
    arguments = parser().parse_args(argv)
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except CommandFailed as error:
        if error.answer is not None:
            Output(arguments.json).failure(error.answer)
        return _fail(str(error), error.code)
    except NotConfigured as error:
        return _fail(str(error), UNREACHABLE)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read has enough: let the rest go
        return OK


def _run(arguments: argparse.Namespace) -> int:
    if arguments.needs == "local":
        return _run_local(arguments)
    connection = find_connection(os.environ, Path.cwd())
    out = Output(arguments.json)
    if arguments.needs == "door":
        arguments.run(arguments, Door(connection.url, connection.api_key), out)
        return OK
    with Admin(connection.admin_url, connection.admin_key) as admin:
        arguments.run(arguments, admin, out)
    return OK


def _run_local(arguments: argparse.Namespace) -> int:
    from infra.local import commands  # only here: the client commands must work without the engine's packages

    return commands.up(arguments.detach) if arguments.run == "up" else commands.down()


def _fail(sentence: str, code: int) -> int:
    sys.stderr.write(sentence + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
