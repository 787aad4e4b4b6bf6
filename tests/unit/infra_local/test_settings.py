import pytest

from infra.local.settings import read_settings
from shared.runtime.settings import SettingsError


def test_defaults_make_two_replicas_with_four_slots() -> None:
    settings = read_settings({"PATH": "/bin"})
    assert (settings.replicas, settings.slots, settings.port) == (2, 4, 8080)


def test_a_shell_that_sourced_demo_env_may_start_the_fleet_again() -> None:
    assert read_settings({"LORAFLEET_URL": "http://x", "LORAFLEET_API_KEY": "k", "LORAFLEET_PORT": "9000"}).port == 9000


def test_a_misspelt_setting_stops_with_its_name() -> None:
    with pytest.raises(SettingsError, match="LORAFLEET_REPLICS"):
        read_settings({"LORAFLEET_REPLICS": "3"})
