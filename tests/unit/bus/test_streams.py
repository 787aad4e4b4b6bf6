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
    event_streams,
    key_prefix,
    redelivery_delay_s,
    stream_of,
)


def test_every_event_is_kept_in_one_stream_a_week_or_of_usage_a_day() -> None:
    events, usage = event_streams()
    assert (events.name, events.max_age_s, events.max_bytes, events.duplicate_window_s) == ("LF_EVENTS", 604800, 0, 120)
    assert (usage.name, usage.max_age_s, usage.max_bytes, usage.duplicate_window_s) == ("LF_USAGE", 86400, 2 << 30, 120)
    assert 0 < usage.least_bytes < usage.max_bytes
    assert usage.subjects == (catalog.USAGE_RECORDED.wildcard,)
    kept = [*events.subjects, *usage.subjects]
    assert sorted(kept) == sorted(channel.wildcard for channel in catalog.CHANNELS if channel.kind is Kind.EVENT)


def test_the_stream_of_a_channel_is_the_one_that_takes_its_subject() -> None:
    for channel in catalog.CHANNELS:
        if channel.kind is Kind.EVENT:
            assert channel.wildcard in stream_of(channel).subjects


def test_every_state_channel_has_a_bucket_of_its_own_that_keeps_the_last_value() -> None:
    specs = buckets()
    assert len({spec.name for spec in specs}) == sum(channel.kind is Kind.STATE for channel in catalog.CHANNELS)
    assert all(spec.is_bucket and spec.history == 1 and spec.max_age_s == 0.0 for spec in specs)
    alias = next(spec for spec in specs if spec.name == "KV_lf_v1_alias")
    assert alias.subjects == (f"{key_prefix(catalog.ALIAS)}>",)


def test_the_shared_durables_are_the_registrys() -> None:
    assert {(durable.stream, durable.name, durable.subject) for durable in durables()} == {
        ("LF_EVENTS", "registry-adapter_registered", catalog.ADAPTER_REGISTERED.wildcard),
        ("LF_EVENTS", "registry-adapter_effect_mismatch", catalog.ADAPTER_EFFECT_MISMATCH.wildcard),
        ("LF_EVENTS", "registry-adapter_load_failed", catalog.ADAPTER_LOAD_FAILED.wildcard),
        ("LF_USAGE", "registry-usage_recorded", catalog.USAGE_RECORDED.wildcard),
    }
    assert {durable.service for durable in durables()} == {Service.REGISTRY}


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
