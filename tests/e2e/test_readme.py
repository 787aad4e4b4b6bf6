"""Every command of the README, run in the order a newcomer would, on the real model with the demo adapters."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local.temporary import free_ports, free_run
from infra.models.fetch import ensure_base_model

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = re.compile(r"```sh\n(.*?)```", re.DOTALL)
EVERYTHING = "make test\n"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tracked files in a folder of their own, beside the environment and the model that are there already."""
    copy = tmp_path_factory.mktemp("newcomer")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    model = ensure_base_model(ROOT / ".lorafleet" / "models", None, lambda line: None)
    (copy / ".lorafleet").mkdir()
    (copy / ".lorafleet" / "models").symlink_to(model.parent)
    _borrow_environment(copy / ".venv")
    return copy


def _borrow_environment(folder: Path) -> None:
    """The packages that are installed already, under a mark of its own: `make` in the copy must never install
    the copy into the environment that it borrows."""
    folder.mkdir()
    for part in (ROOT / ".venv").iterdir():
        if part.name != ".installed":
            (folder / part.name).symlink_to(part)
    (folder / ".installed").touch()


@pytest.fixture(scope="module")
def shell(checkout: Path) -> Iterator[dict[str, str]]:
    """A newcomer's environment, but for ports that nobody else uses."""
    port, admin, nats = free_ports(3)
    ports = {"PORT": port, "ADMIN_PORT": admin, "NATS_PORT": nats, "PROBE_PORT": free_run(4)}
    environ = {**os.environ, **{f"LORAFLEET_{name}": str(value) for name, value in ports.items()}}
    yield environ
    subprocess.run(["make", "down"], cwd=checkout, env=environ, check=True, capture_output=True)


def run(command: str, checkout: Path, shell: dict[str, str]) -> str:
    argv = ["bash", "-euo", "pipefail", "-c", command]
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}  # as a terminal shows them
    done = subprocess.run(argv, cwd=checkout, env=shell, **both, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


def test_every_command_of_the_readme_works_in_its_order(checkout: Path, shell: dict[str, str]) -> None:
    blocks = COMMANDS.findall((checkout / "README.md").read_text())
    said = {block: run(block, checkout, shell) for block in blocks if block != EVERYTHING}
    everything = "\n".join(said.values())
    assert "lorafleet serves" in everything
    assert "data: [DONE]" in everything
    assert "Dear customer" in everything
    assert '"topic"' in everything
    assert "x-adapter-id: my-canary" in everything
    assert '"completed": 10' in everything


def test_the_test_command_of_the_readme_is_what_continuous_integration_runs(checkout: Path) -> None:
    assert EVERYTHING in COMMANDS.findall((checkout / "README.md").read_text())
    assert (checkout / ".ci" / "run").read_text().rstrip().endswith("exec make test")
    planned = subprocess.run(["make", "-n", "test"], cwd=checkout, capture_output=True, text=True, check=True).stdout
    assert "pytest tests --ignore tests/integration" in planned
    assert "pytest tests/integration" in planned


def test_every_link_and_path_of_the_documents_exists(checkout: Path) -> None:
    for page in (checkout / "README.md", *(checkout / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name} links to {target}"
