"""What a run refuses before it starts anything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from infra.local.layout import Layout
from infra.local.preflight import CannotStart
from infra.local.settings import LocalSettings
from infra.local.up import Run, run_fleet


@pytest.mark.parametrize(
    ("settings", "overrides"),
    [(LocalSettings(engine="vllm"), {}), (LocalSettings(), {"LORAFLEET_WORKER_ENGINE": "vllm"})],
)
async def test_an_engine_that_is_not_installed_is_refused_before_anything_starts(
    settings: LocalSettings, overrides: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    said: list[str] = []
    layout = Layout(tmp_path / "home")
    with pytest.raises(CannotStart, match="needs the package vllm"):
        await run_fleet(
            Run(settings=settings, layout=layout, overrides=overrides, say=said.append, serving=lambda: None)
        )
    assert said == []
    assert not any(layout.logs.iterdir())
