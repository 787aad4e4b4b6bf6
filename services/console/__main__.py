"""The `lorafleet` command: wires arguments, connection and command together."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.local.connection import Connection, NotConfigured, find_connection
from infra.local.layout import Layout
from infra.local.settings import read_settings
from services.console.arguments import parser
from services.console.commands import golden
from services.console.commands.output import Output
from services.console.commands.probe import Prober, Wish
from services.console.core.outcome import INTERRUPTED, OK, UNREACHABLE, USAGE
from services.console.io.admin import Admin, CommandFailed
from services.console.io.chat import Door
from services.console.io.meters import Meters
from shared.runtime.clock import SystemClock
from shared.runtime.metrics import Metrics
from shared.runtime.probe import ProbeServer
from shared.runtime.settings import SettingsError
from shared.store.open import store_from_url


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
    except SettingsError as error:
        return _fail(str(error), USAGE)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read has enough: let the rest go
        return OK


def _run(arguments: argparse.Namespace) -> int:
    if arguments.needs == "local":
        return _run_local(arguments)
    if arguments.needs == "merge":
        return _run_merge(arguments)
    if arguments.needs == "plan":
        return _run_plan(arguments)
    if arguments.needs == "load":
        return _run_load(arguments)
    out = Output(arguments.json)
    if arguments.needs == "golden":
        golden.record(arguments, out)
        return OK
    if arguments.needs == "nothing":
        arguments.run(arguments, out)
        return OK
    connection = find_connection(os.environ, Path.cwd())
    if arguments.needs == "door":
        arguments.run(arguments, Door(connection.url, connection.api_key), out)
        return OK
    if arguments.needs == "probe":
        return asyncio.run(_probe(arguments, connection, out))
    with Admin(connection.admin_url, connection.admin_key) as admin:
        arguments.run(arguments, admin, out)
    return OK


async def _probe(arguments: argparse.Namespace, connection: Connection, out: Output) -> int:
    wish = Wish(
        rate_per_s=arguments.rate, for_s=arguments.for_s, canaries=arguments.canaries, base=arguments.base
    )  # fmt: skip
    metrics = Metrics("probe")
    server = ProbeServer(arguments.metrics_port, metrics, lambda: None)
    try:
        await server.start()
    except OSError as error:
        raise CommandFailed(f"Port {arguments.metrics_port} cannot be served: {error.strerror}.", USAGE) from error
    try:
        with Admin(connection.admin_url, connection.admin_key) as admin:
            return await Prober(admin, connection.url, Meters(metrics), SystemClock(), out).run(wish)
    finally:
        await server.stop()


def _run_local(arguments: argparse.Namespace) -> int:
    from infra.local import commands  # only here: the client commands must work without the engine's packages

    return commands.up(arguments.detach) if arguments.run == "up" else commands.down()


def _run_plan(arguments: argparse.Namespace) -> int:
    from services.console.commands import plan  # only here: it computes with numpy, and draws

    plan.run(arguments, Output(arguments.json))
    return OK


def _run_load(arguments: argparse.Namespace) -> int:
    from loadtest.driver.asking import Target  # only here, for the same reason
    from services.console.commands import load
    from services.console.commands.load_question import texts

    keys, url, key = texts(arguments.keys), arguments.url, arguments.key
    if not url or not (key or keys):
        connection = find_connection(os.environ, Path.cwd())
        url, key = url or connection.url, key or connection.api_key
    return load.run(arguments, Target(url=url.rstrip("/"), key=key or "", keys=keys), Output(arguments.json))


def _run_merge(arguments: argparse.Namespace) -> int:
    from services.console.commands import merging  # only here, for the same reason

    out = Output(arguments.json)
    if Path(arguments.adapter).exists():
        merging.from_folder(arguments, out)
        return OK
    try:
        connection = find_connection(os.environ, Path.cwd())
    except NotConfigured as error:
        raise NotConfigured(f"There is no file {arguments.adapter}, and to ask the registry for it: {error}") from error
    settings = read_settings(os.environ)
    try:
        store = store_from_url(settings.store_url or Layout(settings.home.resolve()).store.as_uri(), settings)
    except ValueError as error:
        raise SettingsError(f"LORAFLEET_STORE_URL does not fit: {error}") from error
    with Admin(connection.admin_url, connection.admin_key) as admin:
        merging.from_registry(arguments, admin, store, out)
    return OK


def _fail(sentence: str, code: int) -> int:
    sys.stderr.write(sentence + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
