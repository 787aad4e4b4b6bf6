from __future__ import annotations

from pathlib import Path

import pytest

from infra.adapters.canary import CanaryBuilder
from tests.support.tiny_model import build_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def builder(tiny_model: Path) -> CanaryBuilder:
    return CanaryBuilder(tiny_model)
