from __future__ import annotations

from pathlib import Path

import pytest

from services.replica_worker.text.tokenizer import Tokenizer
from tests.support.tiny_model import tiny_model_once


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_once(tmp_path_factory)


@pytest.fixture(scope="session")
def tokenizer(tiny_folder: Path) -> Tokenizer:
    return Tokenizer.from_folder(tiny_folder)
