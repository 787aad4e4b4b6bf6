import msgspec
import pytest

from infra.local.settings import read_settings
from services.gateway.settings import Settings
from shared.runtime.settings import SettingsError


def test_defaults_make_two_replicas_with_four_slots() -> None:
    settings = read_settings({"PATH": "/bin"})
    assert (settings.replicas, settings.slots, settings.port) == (2, 4, 8080)


def test_a_shell_that_sourced_demo_env_may_start_the_fleet_again() -> None:
    assert read_settings({"LORAFLEET_URL": "http://x", "LORAFLEET_API_KEY": "k", "LORAFLEET_PORT": "9000"}).port == 9000


def test_gateway_workers_take_ports_only_if_there_are_several() -> None:
    chosen = read_settings({"LORAFLEET_NATS_PORT": "9180", "LORAFLEET_GATEWAY_WORKERS": "1"})
    [theirs] = (each.default for each in msgspec.structs.fields(Settings) if each.name == "metrics_port")
    assert chosen.gateway_metrics_port == theirs


def test_a_misspelt_setting_stops_with_its_name() -> None:
    with pytest.raises(SettingsError, match="LORAFLEET_REPLICS"):
        read_settings({"LORAFLEET_REPLICS": "3"})


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"PORT": "70000"}, "PORT is 70000, and a port is from 1 to 65535"),
        ({"ADMIN_PORT": "0"}, "ADMIN_PORT is 0"),
        ({"ADMIN_PORT": "8080"}, "PORT and ADMIN_PORT are both 8080"),
        ({"PROBE_PORT": "8078"}, "PORT and PROBE_PORT .* are both 8080"),
        (
            {"GATEWAY_WORKERS": "4", "GATEWAY_METRICS_PORT": "8088"},
            "PROBE_PORT .* and GATEWAY_METRICS_PORT .* are both 8090",
        ),
        ({"GATEWAY_WORKERS": "3", "NATS_PORT": "9182"}, "NATS_PORT and GATEWAY_METRICS_PORT .* are both 9182"),
        ({"GATEWAY_WORKERS": "2", "GATEWAY_METRICS_PORT": "65535"}, "GATEWAY_METRICS_PORT .* is 65536"),
        ({"GATEWAY_WORKERS": "some"}, "LORAFLEET_GATEWAY_WORKERS is 'some', which does not fit"),
        ({"REPLICAS": "0"}, "REPLICAS must be at least 1"),
        ({"THREADS": "0"}, "THREADS must be at least 1"),
        ({"MORE_POOLS": "r0x2"}, "MORE_POOLS holds 'r0x2', which does not look like r64x2"),
        ({"MORE_POOLS": "r64,r64"}, "MORE_POOLS names a pool twice"),
        ({"MERGED": ",,"}, "LORAFLEET_MERGED is ',,', which does not fit: between its commas it names nothing"),
        ({"MERGED": "acme-1", "ENGINE": "timed"}, "MERGED needs ENGINE=torch, not timed"),
        (
            {"AUTOSCALE": "3..1"},
            "AUTOSCALE is '3..1': say the least and the most replicas of a pool, 1 to 99, as in 1..3",
        ),
        ({"AUTOSCALE": "0..3"}, "AUTOSCALE is '0..3': say the least"),
        ({"AUTOSCALE": "1-3"}, "AUTOSCALE is '1-3': say the least"),
        ({"AUTOSCALE": "1..100"}, "AUTOSCALE is '1..100': say the least"),
        ({"AUTOSCALE": "3..4"}, "REPLICAS and MORE_POOLS must begin within AUTOSCALE=3..4"),
        ({"AUTOSCALE": "1..3", "MORE_POOLS": "r64x4"}, "REPLICAS and MORE_POOLS must begin within AUTOSCALE=1..3"),
        ({"AUTOSCALE": "1..99", "PROBE_PORT": "65500"}, "PROBE_PORT .* is 65536"),
    ],
)
def test_a_choice_that_cannot_work_is_refused_before_anything_starts(variables: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        read_settings({f"LORAFLEET_{name}": value for name, value in variables.items()})
