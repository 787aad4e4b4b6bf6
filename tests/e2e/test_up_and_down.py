"""`lorafleet up` and `down` as an operator meets them: clear refusals, nothing left behind, nothing lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest
from openai import OpenAI

from infra.local.temporary import environment, lorafleet, temporary_fleet
from tests.support.asking import wait_answers
from tests.support.pipeline import Pipeline
from tests.support.waiting import eventually


@pytest.fixture
def settings(model_folder: Path) -> dict[str, str]:
    return {"model": str(model_folder), "demo": "false", "replicas": "1"}


def pids_of(home: Path) -> dict[str, int]:
    pids: dict[str, int] = msgspec.json.decode((home / "pids.json").read_bytes())
    return pids


def alive(pids: dict[str, int]) -> list[str]:
    return [name for name, pid in pids.items() if Path(f"/proc/{pid}/cmdline").exists() and not _zombie(pid)]


def _zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_after_down_nothing_runs_and_the_next_up_serves_the_same_adapter(
    tmp_path: Path, settings: dict[str, str], canary_folders: dict[str, Path]
) -> None:
    marker, folder = next(iter(canary_folders.items()))
    with temporary_fleet(tmp_path, **settings) as fleet:
        headers = {"Authorization": f"Bearer {fleet.connection.admin_key}"}
        with httpx.Client(base_url=fleet.connection.admin_url, headers=headers, trust_env=False) as admin:
            Pipeline(fleet, admin).bring(folder, "lasting", "acme/lasting:prod")
        key, pids = fleet.connection.api_key, pids_of(tmp_path)
        again = fleet.console("up", "--detach")
        assert again.returncode != 0
        assert "already runs here" in again.stdout + again.stderr
    assert alive(pids) == []
    with temporary_fleet(tmp_path, **settings) as fleet:
        assert fleet.connection.api_key == key
        with OpenAI(base_url=f"{fleet.connection.url}/v1", api_key=key, max_retries=0) as client:
            wait_answers(client, "acme/lasting:prod", marker)
    assert (tmp_path / "demo.env").stat().st_mode & 0o077 == 0


def test_a_port_in_use_is_one_clear_line(tmp_path: Path, settings: dict[str, str]) -> None:
    environ = environment(tmp_path, **settings)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", int(environ["LORAFLEET_PORT"])))
        taken.listen()
        refused = lorafleet(environ, "up", timeout_s=60)
    assert refused.returncode == 4
    lines = refused.stdout.splitlines()
    assert len(lines) == 1
    assert f"Port {environ['LORAFLEET_PORT']} on 127.0.0.1 is in use" in lines[0]
    assert "LORAFLEET_PORT" in lines[0]


def test_a_child_that_cannot_start_is_named_and_nothing_stays_behind(tmp_path: Path, settings: dict[str, str]) -> None:
    environ = environment(tmp_path, **settings, worker_dtype="float16")
    failed = lorafleet(environ, "up", "--detach", timeout_s=120)
    assert failed.returncode != 0
    assert "replica-0 ended with exit code" in failed.stdout
    assert "DTYPE" in failed.stdout
    assert alive(pids_of(tmp_path)) == []


def test_a_misspelt_setting_and_a_missing_model_are_one_line_each(tmp_path: Path, settings: dict[str, str]) -> None:
    misspelt = lorafleet({**environment(tmp_path, **settings), "LORAFLEET_SLOTZ": "4"}, "up", timeout_s=60)
    assert misspelt.returncode != 0
    assert "LORAFLEET_SLOTZ" in misspelt.stdout
    assert "LORAFLEET_SLOTS" in misspelt.stdout
    missing = lorafleet(environment(tmp_path, **{**settings, "model": str(tmp_path / "no-model")}), "up", timeout_s=60)
    assert missing.returncode == 4
    assert len(missing.stdout.splitlines()) == 1
    assert "no-model" in missing.stdout


@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM])
def test_a_start_in_the_background_that_is_called_off_leaves_nothing(
    tmp_path: Path, settings: dict[str, str], name: signal.Signals
) -> None:
    argv = [sys.executable, "-m", "services.console", "up", "--detach"]
    environ = environment(tmp_path, **settings)
    with subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, text=True) as starting:
        assert starting.stdout is not None
        assert "nats-server is ready" in starting.stdout.readline()
        starting.send_signal(name)
        assert "stopped; nothing was lost" in starting.stdout.read().splitlines()[-1]
    assert starting.returncode == 4
    assert alive(pids_of(tmp_path)) == []
    assert lorafleet(environ, "down", timeout_s=60).stdout == "no fleet runs here\n"


def test_down_with_a_misspelt_setting_is_one_line(tmp_path: Path) -> None:
    refused = lorafleet({**environment(tmp_path), "LORAFLEET_SLOTZ": "4"}, "down", timeout_s=60)
    assert refused.returncode == 2
    assert len(refused.stderr.splitlines()) == 1
    assert "LORAFLEET_SLOTZ" in refused.stderr


@pytest.fixture
def foreground(tmp_path: Path, settings: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """`lorafleet up` in the foreground, up to its banner."""
    argv = [sys.executable, "-m", "services.console", "up"]
    environ = environment(tmp_path, **settings)
    with subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "lorafleet serves" in line:
                break
        yield process
        if process.poll() is None:
            process.kill()


def test_ctrl_c_ends_a_foreground_fleet_with_all_its_children(
    tmp_path: Path, foreground: subprocess.Popen[str]
) -> None:
    pids = pids_of(tmp_path)
    assert sorted(alive(pids)) == sorted(pids)
    foreground.send_signal(signal.SIGINT)
    assert foreground.wait(60) == 0
    assert alive(pids) == []


def test_children_do_not_outlive_a_supervisor_that_is_killed(tmp_path: Path, foreground: subprocess.Popen[str]) -> None:
    pids = pids_of(tmp_path)
    os.kill(foreground.pid, signal.SIGKILL)
    foreground.wait(10)
    eventually(lambda: alive(pids) == [], "every child to end with its supervisor")
