"""What is heard is taken out of the bytes of a connection, and nothing else is; what is sent is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from shared.bus.nats_client import Congested, PromptClient, Sieve

HEARD, UNHEARD, LINES = b"7", b"8", b"PING\r\n+OK\r\n-ERR 'no'\r\nINFO {\"a\": 1}\r\n"
PAYLOADS = (b"", b"one", b"MSG a.b 7 3\r\nxyz\r\n", bytes(range(256)))


def message(sid: bytes, payload: bytes, reply: bytes = b"") -> bytes:
    words = b" ".join(filter(None, (b"MSG", b"a.b", sid, reply, b"%d" % len(payload))))
    return words + b"\r\n" + payload + b"\r\n"


def with_headers(sid: bytes, payload: bytes) -> bytes:
    head = b"NATS/1.0 503\r\n\r\n"
    return b"HMSG a.b %b %d %d\r\n%b%b\r\n" % (sid, len(head), len(head) + len(payload), head, payload)


UNTAKEN = [LINES, with_headers(HEARD, b"x"), *(message(UNHEARD, each, b"in.box") for each in PAYLOADS), LINES]
TAKEN = [message(HEARD, each, reply) for each, reply in zip(PAYLOADS, (b"", b"in.box", b"", b"q"), strict=True)]
BYTES = b"".join(each for pair in zip(UNTAKEN, [*TAKEN, b"", b"", b""], strict=True) for each in pair)


def cuts() -> Iterator[tuple[int, ...]]:
    """Nowhere, everywhere, and once at each place."""
    yield (0, len(BYTES))
    yield tuple(range(len(BYTES) + 1))
    yield from ((0, at, len(BYTES)) for at in range(1, len(BYTES)))


def test_however_the_bytes_are_cut() -> None:
    for each in cuts():
        taken: list[tuple[str, bytes]] = []
        sieve = Sieve({HEARD: lambda subject, payload, taken=taken: taken.append((subject, payload))})  # type: ignore[misc]
        left = b"".join(sieve.sift(BYTES[begin:end]) for begin, end in pairwise(each))
        assert taken == [("a.b", payload) for payload in PAYLOADS]
        assert left == b"".join(UNTAKEN)


async def test_what_is_sent_in_one_turn_is_bounded_as_well() -> None:
    client, payload = PromptClient(), bytes(1_000_000)
    for _ in range(34):
        client.send("a", payload, "", urgent=False)
    with pytest.raises(Congested):
        client.send("a", payload, "", urgent=False)
