"""Settings that cannot work are refused with their name."""

from __future__ import annotations

import pytest

from services.autoscaler.settings import PREFIX, Settings
from shared.runtime.settings import SettingsError, read


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("MIN_REPLICAS", "41", "MIN_REPLICAS must be from 1 to MAX_REPLICAS"),
        ("MIN_REPLICAS", "0", "MIN_REPLICAS must be from 1 to MAX_REPLICAS"),
        ("MERGED_HOLD_S", "-1", "MERGED_HOLD_S and MERGED_QUIET_S must not be negative"),
        ("TOKENS_IN_FLIGHT_PER_REPLICA", "0", "TOKENS_IN_FLIGHT_PER_REPLICA must be at least 1"),
    ],
)
def test_what_cannot_work_is_refused(name: str, value: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        read(Settings, PREFIX, {PREFIX + name: value})


def test_the_defaults_work() -> None:
    assert read(Settings, PREFIX, {}).max_replicas == 40
