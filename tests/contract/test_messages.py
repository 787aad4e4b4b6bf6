"""Every message of every channel survives its own codec, and what is no message is refused by name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.contracts.catalog import (
    ADAPTER_REGISTERED,
    ANSWER,
    ASSIGNMENT,
    CANCEL,
    CHANNELS,
    FRAME,
    GATEWAY_REPORT,
    GENERATE,
    REPLICA_REPORT,
)
from shared.contracts.channel import Channel, Codec
from shared.contracts.codec import BadMessage, decode, decode_reply, encode, encode_reply
from shared.messages.desired import AssignedAdapter, AssignmentShard
from tests.contract.samples import full, messages, options, replies

EVERY = pytest.mark.parametrize("channel", CHANNELS, ids=[channel.name for channel in CHANNELS])
NATS_PAYLOAD_LIMIT_BYTES = 1 << 20


@EVERY
def test_a_message_comes_back_as_it_went(channel: Channel[Any, Any]) -> None:
    for message in messages(channel):
        assert decode(channel, encode(channel, message)) == message


@EVERY
def test_a_reply_comes_back_as_it_went(channel: Channel[Any, Any]) -> None:
    for reply in replies(channel):
        assert decode_reply(channel, encode_reply(channel, reply)) == reply


@EVERY
def test_a_field_of_a_newer_writer_is_ignored_unless_the_message_is_closed(channel: Channel[Any, Any]) -> None:
    module = msgspec.json if channel.codec is Codec.JSON else msgspec.msgpack
    for message, info in zip(full(channel.message), options(channel.message), strict=True):
        newer = {**module.decode(encode(channel, message)), "of_the_future": [1, {"a": None}]}
        payload = module.encode(newer)
        if info.forbid_unknown_fields:
            with pytest.raises(BadMessage, match="of_the_future"):
                decode(channel, payload)
        else:
            assert decode(channel, payload) == message


@EVERY
@pytest.mark.parametrize("payload", [b"", b"{", b"null", b"[]", b"\xff\xfe", b"\xc1", b'"text"'])
def test_what_is_no_message_is_refused_by_channel(channel: Channel[Any, Any], payload: bytes) -> None:
    with pytest.raises(BadMessage, match=f"channel {channel.name}"):
        decode(channel, payload)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(BadMessage, match="adapter_id"):
        decode(ADAPTER_REGISTERED, b'{"tenant_id": "acme"}')


def test_a_field_of_the_wrong_type_is_named() -> None:
    [report] = full(GATEWAY_REPORT.message)
    payload = encode(GATEWAY_REPORT, report).replace(b'"streams":7', b'"streams":"many"')
    with pytest.raises(BadMessage, match="streams"):
        decode(GATEWAY_REPORT, payload)


def test_a_question_without_reply_says_so() -> None:
    with pytest.raises(BadMessage, match=r"channel replica\.generate has no reply"):
        decode_reply(GENERATE, b"")


def test_only_the_registration_is_closed() -> None:
    closed = {channel.name for channel in CHANNELS for info in options(channel.message) if info.forbid_unknown_fields}
    assert closed == {ADAPTER_REGISTERED.name}


def test_the_token_path_is_msgpack_and_the_rest_is_readable() -> None:
    packed = {channel.name for channel in CHANNELS if channel.codec is Codec.MSGPACK}
    assert packed == {ANSWER.name, FRAME.name, GENERATE.name, CANCEL.name, "replica.replay"}
    [report] = full(REPLICA_REPORT.message)
    assert encode(REPLICA_REPORT, report).startswith(b'{"replica_id":')


def test_the_answers_are_told_apart_by_their_tag() -> None:
    kinds = [type(decode(ANSWER, encode(ANSWER, answer))).__name__ for answer in full(ANSWER.message)]
    assert sorted(kinds) == ["Accepted", "Queued", "Refused"]


def test_a_full_shard_of_the_longest_names_fits_into_one_payload() -> None:
    longest = AssignedAdapter(adapter_id="a" * 128, digest="f" * 64, role="owner", tier="disk")
    shard = AssignmentShard(
        replica_id="r" * 64, pool_id="p" * 64, epoch=1 << 60, shard=0, shards=10, adapters=(longest,) * 2000
    )
    assert len(encode(ASSIGNMENT, shard)) < NATS_PAYLOAD_LIMIT_BYTES
