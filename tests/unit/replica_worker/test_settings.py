"""Settings that make no sense end the worker before it starts."""

from __future__ import annotations

import pytest

from services.replica_worker.settings import PREFIX, Settings
from shared.runtime.settings import SettingsError, read


@pytest.mark.parametrize(("name", "value", "least"), [("SLOTS", "0", 1), ("QUEUE_LIMIT", "0", 1), ("THREADS", "-1", 0)])
def test_what_is_too_little_is_named(name: str, value: str, least: int) -> None:
    environ = {"REPLICA_ID": "r", "MODEL_FOLDER": "/m", "STORE_URL": "file:///x", "CACHE_FOLDER": "/c", name: value}
    with pytest.raises(SettingsError, match=f"{name} must be at least {least}, not {value}"):
        read(Settings, PREFIX, {PREFIX + each: said for each, said in environ.items()})
