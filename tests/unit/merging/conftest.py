"""What tests of merging share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tiny_model import tiny_model_once


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_once(tmp_path_factory)
