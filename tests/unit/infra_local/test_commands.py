"""What `lorafleet up` ends with."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.local import commands
from infra.local.preflight import CannotStart, WrongSetting
from infra.local.up import Run


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (WrongSetting("autoscaler ended with exit code 2 at start: UTILISATION must be above 0 and at most 1"), 2),
        (CannotStart("Port 8080 on 127.0.0.1 is in use"), 4),
    ],
)
def test_a_fleet_that_was_told_what_cannot_work_ends_like_any_wrong_word(
    error: CannotStart, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def refuses(run: Run) -> None:
        raise error

    monkeypatch.setenv("LORAFLEET_HOME", str(tmp_path))
    monkeypatch.setattr(commands, "run_fleet", refuses)
    assert commands.run_here(lambda: None) == code
    assert capsys.readouterr().out.count(str(error)) == 1
