"""Settings that make no sense end the service before it starts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from services.registry.core.files.sources import Prefixes
from services.registry.settings import PREFIX, Settings
from shared.runtime.settings import SettingsError, read
from tests.support.registry_world import settings

ENVIRON = {"ADMIN_KEY": "k" * 16, "DATABASE_URL": "sqlite+aiosqlite:///x", "STORE_URL": "file:///s"}


def test_prefixes_name_folders_and_buckets(tmp_path: Path) -> None:
    said = settings(tmp_path, weights_prefixes=("file:///srv/inbox/", "file:///", "s3://models/acme/", "s3://models"))
    assert said.weights_from == Prefixes(folders=("/srv/inbox", "/"), buckets=("s3://models/acme", "s3://models"))


def test_nothing_is_read_from_disk_unless_it_is_allowed() -> None:
    said = read(Settings, PREFIX, {PREFIX + name: value for name, value in ENVIRON.items()})
    assert (said.weights_prefixes, said.host) == ((), "127.0.0.1")


@pytest.mark.parametrize(
    "changes",
    [
        {"admin_key": ""}, {"weights_prefixes": ("s3://x",)}, {"database_url": "x"}, {"evaluations_at_once": 0},
        {"reconcile_s": 0.0}, {"outbox_retry_s": -1.0}, {"weights_prefixes": ("/srv",)},
        {"weights_prefixes": ("s3://models/../x",)},
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        settings(tmp_path, **changes)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("ADMIN_KEY", "short", "at least 16 characters"),
        ("DATABASE_URL", "sqlite:///x", "sqlite+aiosqlite:///file"),
        ("WEIGHTS_PREFIXES", "/inbox", "does not look like file:///folder"),
        ("PORT", "many", "LORAFLEET_REGISTRY_PORT"),
    ],
)
def test_what_is_wrong_is_said_in_words(name: str, value: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(sentence)):
        read(Settings, PREFIX, {PREFIX + each: said for each, said in {**ENVIRON, name: value}.items()})


def test_a_setting_that_is_missing_is_named() -> None:
    with pytest.raises(SettingsError, match="LORAFLEET_REGISTRY_ADMIN_KEY is not set"):
        read(Settings, PREFIX, {})
