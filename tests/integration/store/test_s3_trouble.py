"""Links that break and servers in trouble: tried again, and what had arrived is kept."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from shared.store.patience import Patience
from shared.store.port import ObjectChanged, ObjectMissing, StoreUnavailable, weights_key
from shared.store.s3 import S3Store
from tests.integration.store.bucket import Bucket, Waits
from tests.integration.store_suite import LARGE, SMALL, chunks_of, digest_of, put, read_all
from tests.support.faulty_link import Answer, Cut, FaultyLink, Silence

CONTENT = LARGE[: 5 << 20]
DIGEST = digest_of(LARGE)
KEY = weights_key(DIGEST)
THROTTLED = Answer(503, "SlowDown")
BROKEN = Answer(500, "InternalError")


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
async def stored(bucket: Bucket) -> str:
    """The key of CONTENT, which lies at the server."""
    return await put(bucket.store(), CONTENT)


async def read_into(received: bytearray, store: S3Store, key: str) -> None:
    async for chunk in store.read(key):
        received += chunk


async def test_a_dropped_link_goes_on_from_the_byte_it_reached(
    bucket: Bucket, link: FaultyLink, waits: Waits, stored: str
) -> None:
    link.plant("GET", Cut(1_234_567), Cut(0), Cut(2_000_000))
    assert await read_all(bucket.store(link, waits.patience()), stored) == CONTENT
    assert link.starts() == [0, 1_234_567, 1_234_567, 3_234_567]
    first, *others = [request.if_match for request in link.requests]
    assert first == ""
    assert len(set(others)) == 1
    assert others[0] != ""


async def test_a_reset_goes_on_after_the_last_chunk_that_came(
    bucket: Bucket, link: FaultyLink, waits: Waits, stored: str
) -> None:
    link.plant("GET", Cut(3 << 20, reset=True))
    assert await read_all(bucket.store(link, waits.patience()), stored) == CONTENT
    first, second = link.starts()
    assert first == 0
    assert second in range(0, (3 << 20) + 1, 1 << 18)


async def test_a_silent_link_is_left_and_its_connection_closed(
    bucket: Bucket, link: FaultyLink, waits: Waits, stored: str
) -> None:
    link.plant("GET", Silence(2 << 20))
    assert await read_all(bucket.store(link, waits.patience(), silent_s=2.0), stored) == CONTENT
    assert link.starts() == [0, 2 << 20]


@pytest.mark.parametrize("answer", [THROTTLED, BROKEN, Answer(429, "TooManyRequests"), Answer(502, "BadGateway")])
async def test_a_server_in_trouble_is_asked_again_from_the_same_byte(
    bucket: Bucket, link: FaultyLink, waits: Waits, stored: str, answer: Answer
) -> None:
    link.plant("GET", answer, Cut(1 << 20), answer, answer)
    assert await read_all(bucket.store(link, waits.patience()), stored) == CONTENT
    assert link.starts() == [0, 0, 1 << 20, 1 << 20, 1 << 20]


async def test_progress_makes_the_attempts_count_anew(
    bucket: Bucket, link: FaultyLink, waits: Waits, stored: str
) -> None:
    link.plant("GET", *[Cut(300_000)] * 12)
    assert await read_all(bucket.store(link, waits.patience(attempts=2)), stored) == CONTENT
    assert waits.waits_s == [1.0] * 12


async def test_without_progress_it_ends_and_what_came_was_right(
    bucket: Bucket, link: FaultyLink, waits: Waits, stored: str
) -> None:
    link.plant("GET", Cut(1 << 20), *[THROTTLED] * 3)
    received = bytearray()
    with pytest.raises(StoreUnavailable, match=r"the store failed for object .*: it answers 503 \(SlowDown\)"):
        await read_into(received, bucket.store(link, waits.patience()), stored)
    assert waits.waits_s == [1.0, 2.0, 3.0]
    assert received == CONTENT[: 1 << 20]
    assert received + await read_all(bucket.store(), stored, len(received)) == CONTENT


@pytest.mark.parametrize("answer", [Answer(404, "NotFound"), Answer(400, "InvalidRequest"), Answer(501, "No")])
async def test_what_will_not_pass_is_not_repeated_and_is_no_missing_object(
    bucket: Bucket, link: FaultyLink, waits: Waits, stored: str, answer: Answer
) -> None:
    link.plant("GET", answer)
    with pytest.raises(StoreUnavailable, match=str(answer.status)):
        await read_all(bucket.store(link, waits.patience()), stored)
    assert len(link.requests) == 1


@pytest.mark.parametrize("other", [CONTENT[::-1], CONTENT + b"more", SMALL], ids=["as long", "longer", "shorter"])
async def test_versions_are_never_glued_together(bucket: Bucket, link: FaultyLink, stored: str, other: bytes) -> None:
    async def replaced_meanwhile(seconds: float) -> None:
        await bucket.store().put(stored, chunks_of(other), digest_of(other))

    link.plant("GET", Cut(1 << 20))
    received = bytearray()
    with pytest.raises(ObjectChanged):
        await read_into(received, bucket.store(link, Patience(sleep_s=replaced_meanwhile)), stored)
    assert received == CONTENT[: 1 << 20]


async def test_an_object_that_goes_while_it_is_read_is_missing(bucket: Bucket, link: FaultyLink, stored: str) -> None:
    store = bucket.store(link, Waits().patience())
    link.plant("GET", Cut(1 << 20))
    async with aclosing(store.read(stored)) as chunks:
        await anext(chunks)
        await bucket.store().delete(stored)
        with pytest.raises(ObjectMissing):
            async for _ in chunks:
                pass


async def test_a_read_that_is_given_up_hangs_up(bucket: Bucket, link: FaultyLink, stored: str) -> None:
    link.plant("GET", Silence(1 << 20))
    async with aclosing(bucket.store(link, silent_s=2.0).read(stored)) as chunks:
        await anext(chunks)
    await asyncio.wait_for(link.silent(), 20)


async def test_parts_are_sent_again_and_the_object_is_whole(bucket: Bucket, link: FaultyLink, waits: Waits) -> None:
    link.plant("POST", THROTTLED, None, BROKEN)
    link.plant("PUT", Cut(0), THROTTLED, None, BROKEN)
    assert await bucket.store(link, waits.patience()).put(KEY, chunks_of(LARGE), DIGEST) == len(LARGE)
    assert await read_all(bucket.store(), KEY) == LARGE
    assert bucket.files() == [KEY]


async def test_a_small_object_is_sent_again(bucket: Bucket, link: FaultyLink, waits: Waits) -> None:
    link.plant("PUT", THROTTLED, BROKEN)
    key = await put(bucket.store(link, waits.patience()), SMALL)
    assert await read_all(bucket.store(), key) == SMALL
    assert waits.waits_s == [1.0, 2.0]


async def test_a_completion_whose_answer_was_lost_counts(bucket: Bucket, link: FaultyLink, waits: Waits) -> None:
    link.plant("POST", None, Cut(0))
    await bucket.store(link, waits.patience()).put(KEY, chunks_of(LARGE), DIGEST)
    assert [request.method for request in link.requests].count("POST") == 3
    assert await read_all(bucket.store(), KEY) == LARGE


async def test_a_put_that_fails_for_good_leaves_nothing(bucket: Bucket, link: FaultyLink, waits: Waits) -> None:
    link.plant("PUT", None, *[BROKEN] * 4)
    with pytest.raises(StoreUnavailable, match="500"):
        await bucket.store(link, waits.patience()).put(KEY, chunks_of(LARGE), DIGEST)
    assert not await bucket.store().exists(KEY)
    assert bucket.files() == []


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_short_questions_are_asked_again(
    bucket: Bucket, link: FaultyLink, waits: Waits, stored: str, method: str
) -> None:
    link.plant(method, BROKEN, THROTTLED)
    store = bucket.store(link, waits.patience())
    assert await store.exists(stored)
    await store.delete(stored)
    assert not await store.exists(stored)
    assert waits.waits_s == [1.0, 2.0]
