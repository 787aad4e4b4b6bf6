"""`adapters register` beside a registry that starts again."""

from __future__ import annotations

from typing import Any, cast

import pytest

from services.console.commands import adapters
from services.console.commands.adapters import settled
from services.console.core.outcome import UNREACHABLE
from services.console.io.admin import Admin, CommandFailed


class Restarting:
    """Answers after so many calls that nobody took."""

    def __init__(self, away: int) -> None:
        self.away = away

    def get(self, path: str) -> dict[str, Any]:
        if self.away:
            self.away -= 1
            raise CommandFailed("No answer.", UNREACHABLE)
        return {"adapter_id": "a1", "status": "active"}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "_POLL_S", 0.0)


def test_whoever_waits_for_an_adapter_waits_for_its_registry_too() -> None:
    assert settled(cast(Admin, Restarting(away=3)), "a1", 5.0)["status"] == "active"


def test_a_registry_that_does_not_come_back_is_told_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "_PATIENCE_S", 0.0)
    with pytest.raises(CommandFailed) as caught:
        settled(cast(Admin, Restarting(away=1_000_000)), "a1", 5.0)
    assert caught.value.code == UNREACHABLE
