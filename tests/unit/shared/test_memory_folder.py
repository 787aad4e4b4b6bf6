"""Tests write where it is fast, and nowhere where it would not fit."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.memory_folder import memory_folder


def test_a_place_with_room_is_taken(tmp_path: Path) -> None:
    assert memory_folder(tmp_path, room_bytes=1) == tmp_path


def test_a_place_that_is_small_or_not_there_is_not(tmp_path: Path) -> None:
    assert memory_folder(tmp_path, room_bytes=1 << 60) is None
    assert memory_folder(tmp_path / "nowhere", room_bytes=1) is None


def test_a_place_from_which_no_program_runs_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = os.statvfs(tmp_path)
    noexec = os.statvfs_result((*known[:8], known.f_flag | os.ST_NOEXEC, known.f_namemax))
    monkeypatch.setattr(os, "statvfs", lambda _: noexec)
    assert memory_folder(tmp_path, room_bytes=1) is None


def test_what_tests_start_writes_where_they_do() -> None:
    program = "import tempfile; print(tempfile.gettempdir())"
    told = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert told.strip() == tempfile.gettempdir()
