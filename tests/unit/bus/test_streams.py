"""What the bus keeps follows from the catalog alone."""

from __future__ import annotations

import re

from shared.contracts import catalog
from shared.contracts.channel import Kind, Service
from shared.contracts.streams import (
    MAX_MESSAGE_BYTES,
    REDELIVERY_DELAYS_S,
    SERVER_PAYLOAD_BYTES,
    buckets,
    consumer_name,
    durables,
    event_stream,
    key_prefix,
    redelivery_delay_s,
)


def test_the_stream_keeps_a_week_of_every_event_and_of_nothing_else() -> None:
    spec = event_stream()
    assert (spec.name, spec.max_age_s, spec.duplicate_window_s) == ("LF_EVENTS", 604800.0, 120.0)
    [everything] = spec.subjects
    covered = {
        channel.name for channel in catalog.CHANNELS if channel.wildcard.startswith(everything.removesuffix(">"))
    }
    assert covered == {channel.name for channel in catalog.CHANNELS if channel.kind is Kind.EVENT}


def test_every_state_channel_has_a_bucket_of_its_own_that_keeps_the_last_value() -> None:
    specs = buckets()
    assert len({spec.name for spec in specs}) == sum(channel.kind is Kind.STATE for channel in catalog.CHANNELS)
    assert all(spec.is_bucket and spec.history == 1 and spec.max_age_s == 0.0 for spec in specs)
    alias = next(spec for spec in specs if spec.name == "KV_lf_v1_alias")
    assert alias.subjects == (f"{key_prefix(catalog.ALIAS)}>",)


def test_the_shared_durables_are_the_registrys() -> None:
    assert {(durable.name, durable.subject, durable.service) for durable in durables()} == {
        ("registry-adapter_registered", catalog.ADAPTER_REGISTERED.wildcard, Service.REGISTRY),
        ("registry-adapter_effect_mismatch", catalog.ADAPTER_EFFECT_MISMATCH.wildcard, Service.REGISTRY),
        ("registry-adapter_load_failed", catalog.ADAPTER_LOAD_FAILED.wildcard, Service.REGISTRY),
        ("registry-usage_recorded", catalog.USAGE_RECORDED.wildcard, Service.REGISTRY),
    }


def test_a_consumers_name_is_one_token() -> None:
    for channel in catalog.CHANNELS:
        assert re.fullmatch(r"[A-Za-z0-9_-]+", consumer_name(channel, "pipeline-1"))


def test_redelivery_waits_longer_each_time_and_then_stays() -> None:
    delays = [redelivery_delay_s(deliveries) for deliveries in range(1, 9)]
    assert delays[: len(REDELIVERY_DELAYS_S)] == list(REDELIVERY_DELAYS_S)
    assert delays == sorted(delays)
    assert delays[-1] == REDELIVERY_DELAYS_S[-1]
    assert redelivery_delay_s(0) == REDELIVERY_DELAYS_S[0]


def test_the_largest_message_fits_the_server_with_its_headers() -> None:
    assert MAX_MESSAGE_BYTES + 4096 < SERVER_PAYLOAD_BYTES
