"""The two commands stand on a pinned environment, the same here and in CI."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "infra/lock/requirements.lock"
CLIENTS_LOCK = ROOT / "infra/lock/clients.lock"
NODE_LOCK = ROOT / "infra/clients/package-lock.json"
TARGETS = (
    *("up", "down", "test", "lint", "types", "unit", "contract", "simulation", "integration", "e2e"),
    *("vllm", "bench", "bench-engine", "isolation", "routing-report", "autoscaling-report", "targets", "lock", "clean"),
    *("calibrate", "twin-report", "bench-driver", "contract-clients"),
)

NOT_IN_THE_LOCK = ("vllm",)
"""Its CUDA build of several GB is for production; `make vllm` has a venv of its own."""


def pins(lock: Path = LOCK) -> dict[str, str]:
    lines = [line for line in lock.read_text().splitlines() if line and not line.startswith("#")]
    found = [re.fullmatch(r"([A-Za-z0-9._-]+)==([0-9][0-9A-Za-z.]*)", line) for line in lines]
    assert None not in found, "every line is name==version, with no local version, address or hash"
    return {normal(match[1]): match[2] for match in found if match}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_everything_that_pyproject_asks_for_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {name: asked for name, asked in project["optional-dependencies"].items() if name not in NOT_IN_THE_LOCK}
    asked = [*project["dependencies"], *(one for extra in extras.values() for one in extra)]
    names = {normal(re.split(r"[<>=!\[; ]", one)[0]) for one in asked}
    assert names - set(pins()) == set()


def test_what_runs_is_what_is_pinned() -> None:
    """A test that passes with other versions than those of the lock proves nothing to the next one who clones."""
    installed = {name: version(name).partition("+")[0] for name in pins()}
    assert installed == pins()


def test_clients_are_pinned_and_their_locks_name_no_host() -> None:
    """The SDK is the same one here and there: what `make test` shows of it is true of the others' environment."""
    assert {"langchain-openai", "litellm", "schemathesis"} <= set(pins(CLIENTS_LOCK))
    assert pins(CLIENTS_LOCK)["openai"] == pins()["openai"]
    assert "://" not in NODE_LOCK.read_text()


def test_a_set_up_without_a_network_is_one_line_and_mends_what_was_broken_off(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "infra/lock/requirements.lock"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / ".venv"], check=True)
    nowhere = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    argv = ["make", "install"]
    done = subprocess.run(
        argv, cwd=tmp_path, env={**os.environ, **nowhere}, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    [sentence] = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert sentence.startswith("set-up: pip failed (ERROR: No matching distribution found for ")
    assert "check the network" in sentence
    assert not (tmp_path / ".venv" / ".installed").exists()


def test_ci_runs_the_same_command_as_everybody() -> None:
    script = ROOT / ".ci/run"
    assert os.access(script, os.X_OK)
    commands = [line for line in script.read_text().splitlines() if line and not line.startswith("#")]
    assert commands[0] == "set -euo pipefail"
    assert commands[-1] == "exec make test"


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_exists_for_every_intention(target: str) -> None:
    told = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert re.search(rf"^make {target} +\S", told, re.MULTILINE)
