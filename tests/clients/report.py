"""Which client passed which test, as a table and as a report: `-p tests.clients.report --clients-report PATH`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.report import Figure, write_report
from tests.clients.roster import ALL, VENV, Client

_PACKAGES = ("openai", "langchain-openai", "litellm", "schemathesis")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--clients-report", type=Path, help="ask all clients, and write what passed as JSON")


def pytest_configure(config: pytest.Config) -> None:
    if (path := config.getoption("--clients-report")) is not None:
        config.pluginmanager.register(Report(path), "clients-report")


class Report:
    """A figure for each client and test: 1 passed, 0 did not."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._passed: dict[tuple[str, str], bool] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Function) -> Iterator[None]:
        report: pytest.TestReport = yield
        client = item.callspec.params.get("client") if hasattr(item, "callspec") else None
        if isinstance(client, Client):
            place = client.name, item.originalname.removeprefix("test_")
            self._passed[place] = self._passed.get(place, True) and report.passed
        return report

    def pytest_sessionfinish(self) -> None:
        figures = {
            f"{client}.{feature}": Figure(value=int(passed), unit="passed", target=">= 1")
            for (client, feature), passed in sorted(self._passed.items())
        }
        failed = sum(not passed for passed in self._passed.values())
        total = {"failed": Figure(value=failed, unit="tests", target="<= 0")}
        write_report(self._path.stem, {**total, **figures}, self._path.parent, _versions())

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line("")
        for line in table(self._passed):
            terminalreporter.write_line(line)


def table(passed: dict[tuple[str, str], bool]) -> list[str]:
    """A line for each test, a column for each client; "-": the client has no such thing."""
    clients = [client.name for client in ALL if any(name == client.name for name, _ in passed)]
    features = list(dict.fromkeys(feature for _, feature in passed))
    words = {None: "-", True: "passed", False: "FAILED"}
    width = max((len(feature) for feature in features), default=0)
    lines = ["  ".join([" " * width, *clients])]
    for feature in features:
        cells = [words[passed.get((client, feature))].ljust(len(client)) for client in clients]
        lines.append("  ".join([feature.ljust(width), *cells]).rstrip())
    return lines


def _versions() -> dict[str, str]:
    code = f"from importlib.metadata import version; print(*map(version, {_PACKAGES}))"
    read = _output([str(VENV / "bin/python"), "-c", code]).split()
    node = shutil.which("node") or "node"
    installed = 'console.log(require("./node_modules/openai/package.json").version)'
    return {
        **dict(zip(_PACKAGES, read, strict=True)),
        "openai-node": _output([node, "-e", installed]),
        "node": _output([node, "--version"]),
    }


def _output(argv: list[str]) -> str:
    return subprocess.run(argv, cwd=VENV / "node", check=True, capture_output=True, text=True).stdout.strip()
