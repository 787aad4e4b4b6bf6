"""What the environment may say."""

from __future__ import annotations

import pytest

from services.gateway.settings import PREFIX, Settings
from shared.runtime.settings import SettingsError, read

GIVEN = {
    "LORAFLEET_GATEWAY_NATS_URL": "nats://x",
    "LORAFLEET_GATEWAY_NATS_USER": "gateway",
    "LORAFLEET_GATEWAY_NATS_PASSWORD": "secret",
    "LORAFLEET_GATEWAY_GATEWAY_ID": "gateway-0",
}


def test_what_must_be_said_is_enough() -> None:
    settings = read(Settings, PREFIX, GIVEN)
    assert (settings.streams.queued_s, settings.routing.bound) == (1.0, 1.25)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(SettingsError, match="LORAFLEET_GATEWAY_PROT"):
        read(Settings, PREFIX, GIVEN | {"LORAFLEET_GATEWAY_PROT": "1"})


@pytest.mark.parametrize("gateway_id", ["", "a.b", "a b", "x" * 49])
def test_an_id_that_cannot_be_part_of_a_subject_is_refused(gateway_id: str) -> None:
    with pytest.raises(SettingsError, match="gateway_id"):
        read(Settings, PREFIX, GIVEN | {"LORAFLEET_GATEWAY_GATEWAY_ID": gateway_id})


@pytest.mark.parametrize(
    ("name", "value"),
    [("FRESH_S", "0"), ("LARGEST_BODY_BYTES", "-1"), ("LOAD_BOUND", "0.5"), ("ROUTE_LOG_ONE_IN", "-1")],
)
def test_what_no_gateway_could_run_with_is_refused(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name.lower()):
        read(Settings, PREFIX, GIVEN | {PREFIX + name: value})


def test_how_replicas_are_chosen_can_be_set() -> None:
    chosen = read(Settings, PREFIX, GIVEN | {PREFIX + "STRATEGY": "random", PREFIX + "BOUNDED": "false"})
    assert (chosen.routing.strategy, chosen.routing.bounded, chosen.request_strategies) == ("random", False, False)
    with pytest.raises(SettingsError, match="it is one of affinity, random, least_loaded, round_robin"):
        read(Settings, PREFIX, GIVEN | {PREFIX + "STRATEGY": "fastest"})
