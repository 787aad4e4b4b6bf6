"""Settings that cannot work are refused with their name."""

from __future__ import annotations

import pytest

from services.placement.__main__ import policy_of
from services.placement.settings import PREFIX, Settings
from shared.runtime.settings import SettingsError, read


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("OWNERS", "0", "OWNERS must be at least 1"),
        ("LOST_AFTER_S", "60", "LOST_AFTER_S must be above 0 and below"),
        ("TARGET_SHARE", "1.5", "TARGET_SHARE must be above 0 and at most 1"),
        ("REPLICA_TOKENS_PER_S", "0", "REPLICA_TOKENS_PER_S must be above 0"),
        ("MOVES_PER_S", "0", "MOVES_PER_S must be at least 1"),
        ("GPU_RATES", "NVIDIA H200=2.5,NVIDIA L4", "GPU_RATES has 'NVIDIA L4', which is no KIND=RATE"),
        ("REFRESH_S", "0", "REFRESH_S must be above 0"),
        ("SHRINK_AFTER_S", "-1", "SHRINK_AFTER_S, EVICTIONS_PER_MIN and STARTING_GRACE_S must not be negative"),
        ("GPU_RATES", "NVIDIA L4=0.3,nvidia l4=0.4", "GPU_RATES names 'nvidia l4' twice"),
        ("GPU_RATES", "NVIDIA L4=0", "GPU_RATES has 'NVIDIA L4=0', which is no KIND=RATE"),
    ],
)
def test_what_cannot_work_is_refused(name: str, value: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        read(Settings, PREFIX, {PREFIX + name: value})


def test_the_defaults_work() -> None:
    assert read(Settings, PREFIX, {}).owners == 2


def test_rates_are_read_by_kind() -> None:
    read_in = read(Settings, PREFIX, {PREFIX + "GPU_RATES": "NVIDIA H200 = 2.5, NVIDIA L4=0.3"})
    assert policy_of(read_in).tick.weight.rates == {"nvidia h200": 2.5, "nvidia l4": 0.3}
