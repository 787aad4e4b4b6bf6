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
        ("MERGED_HOLD_S", "-1", "MERGED_HOLD_S must not be negative, and is -1"),
        ("BUDGET_USD_PER_HOUR", "-0.5", "BUDGET_USD_PER_HOUR must not be negative, and is -0.5"),
        ("UP_COOLDOWN_S", "-1", "UP_COOLDOWN_S must not be negative"),
        ("DOWN_COOLDOWN_S", "0", "DOWN_COOLDOWN_S must be above 0, not 0"),
        ("AVERAGE_S", "-40", "AVERAGE_S must be above 0, not -40"),
        ("PROBE_PORT", "70000", "PROBE_PORT must be from 0 to 65535, not 70000"),
        ("UTILISATION", "nan", "UTILISATION is 'nan', which does not fit: it must be a finite number"),
        ("PANIC_S", "inf", "PANIC_S is 'inf', which does not fit: it must be a finite number"),
        ("MAX_QUEUE_S", "two", "MAX_QUEUE_S is 'two', which does not fit"),
        ("TOKENS_IN_FLIGHT_PER_REPLICA", "0", "TOKENS_IN_FLIGHT_PER_REPLICA must be at least 1"),
    ],
)
def test_what_cannot_work_is_refused(name: str, value: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        read(Settings, PREFIX, {PREFIX + name: value})


def test_the_defaults_work() -> None:
    assert read(Settings, PREFIX, {}).max_replicas == 40
