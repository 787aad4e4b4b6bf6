"""Subjects say what is promised, and no id can make one mean another."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

import pytest

from shared.contracts.catalog import ALIAS, ANSWER, CHANNELS, FLEET_METRICS, FRAME, REPLICA_REPORT
from shared.contracts.channel import Channel, Kind

EVERY = pytest.mark.parametrize("channel", CHANNELS, ids=[channel.name for channel in CHANNELS])
SUBJECT = re.compile(r"lf\.v1\.(evt|kv|tel|rpc|reply)(\.[a-z0-9_-]+)+")


def ids_for(channel: Channel[Any, Any]) -> tuple[str, ...]:
    return tuple(f"id-{at}" for at, _ in enumerate(channel.params))


@EVERY
def test_a_subject_names_its_promise_and_its_fact(channel: Channel[Any, Any]) -> None:
    subject = channel.subject(*ids_for(channel))
    assert SUBJECT.fullmatch(subject)
    assert subject.split(".")[2] == channel.kind.value
    if channel.kind is not Kind.REPLY:
        assert subject.startswith(f"lf.v1.{channel.kind.value}.{channel.name}")


@EVERY
def test_the_ids_come_back_out_of_a_subject(channel: Channel[Any, Any]) -> None:
    assert channel.ids_of(channel.subject(*ids_for(channel))) == ids_for(channel)


@EVERY
@pytest.mark.parametrize("bad", ["", "a.b", "*", ">", "a b", "a\n", "\0", "a\tb", "\r"])
def test_an_id_that_is_no_single_token_is_refused(channel: Channel[Any, Any], bad: str) -> None:
    for at, param in enumerate(channel.params):
        ids = list(ids_for(channel))
        ids[at] = bad
        with pytest.raises(ValueError, match=f"{param} of channel {channel.name}"):
            channel.subject(*ids)


@EVERY
def test_the_number_of_ids_is_checked(channel: Channel[Any, Any]) -> None:
    with pytest.raises(ValueError, match=f"channel {channel.name} needs"):
        channel.subject(*ids_for(channel), "one-more")


def test_no_message_can_arrive_on_two_channels() -> None:
    for one, other in combinations(CHANNELS, 2):
        assert not matches(one.wildcard, other.subject(*ids_for(other))), (one.name, other.name)
        assert not matches(other.wildcard, one.subject(*ids_for(one))), (one.name, other.name)


def test_the_wildcard_of_a_channel_is_its_own() -> None:
    for channel in CHANNELS:
        assert matches(channel.wildcard, channel.subject(*ids_for(channel)))


def test_both_replies_of_a_gateway_start_with_its_id() -> None:
    assert ANSWER.subject("g1", "q1") == "lf.v1.reply.g1.r.q1"
    assert FRAME.subject("g1", "r1") == "lf.v1.reply.g1.f.r1"


def test_what_operators_and_pipelines_type_stays_what_it_is() -> None:
    assert FLEET_METRICS.subject() == "lf.v1.tel.fleet.metrics"
    assert REPLICA_REPORT.wildcard == "lf.v1.tel.replica.report.*"
    assert ALIAS.bucket == "lf_v1_alias"


def test_buckets_are_named_as_the_bus_allows_and_belong_to_one_channel() -> None:
    buckets = [channel.bucket for channel in CHANNELS if channel.kind is Kind.STATE]
    assert len(set(buckets)) == len(buckets)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]+", bucket) for bucket in buckets)


def test_every_channel_has_a_writer_a_reader_and_a_sentence() -> None:
    for channel in CHANNELS:
        assert channel.writers, channel.name
        assert channel.readers, channel.name
        assert channel.summary.endswith("."), channel.name
        assert bool(channel.dedup) == (channel.kind is Kind.EVENT), channel.name


def test_names_are_unique() -> None:
    names = [channel.name for channel in CHANNELS]
    assert len(set(names)) == len(names)


def matches(wildcard: str, subject: str) -> bool:
    """NATS' matching of `*`, written down again so that the catalog is not checked with itself."""
    expected, found = wildcard.split("."), subject.split(".")
    return len(expected) == len(found) and all(e in ("*", f) for e, f in zip(expected, found, strict=True))
