"""Usage on its way out: in order, the same batch until it is sent, in bounded memory."""

from __future__ import annotations

from services.gateway.core.usage import UsagePolicy, UsageQueue
from tests.support.usage_records import record


def queue(*, batch_records: int = 2, most_records: int = 100) -> UsageQueue:
    return UsageQueue("g1", UsagePolicy(batch_records=batch_records, most_records=most_records))


def sent(waiting: UsageQueue) -> list[tuple[int, list[str]]]:
    """Everything that leaves, batch by batch."""
    batches = []
    while (batch := waiting.batch()) is not None:
        batches.append((batch.sequence, [one.call_id for one in batch.records]))
        waiting.sent()
    return batches


def test_records_leave_in_their_order_in_numbered_batches() -> None:
    waiting = queue()
    assert waiting.batch() is None
    for name in "abc":
        assert not waiting.add(record(name))
    assert len(waiting) == 3
    assert sent(waiting) == [(1, ["a", "b"]), (2, ["c"])]
    waiting.add(record("d"))
    assert sent(waiting) == [(3, ["d"])]
    assert (len(waiting), waiting.lost) == (0, 0)


def test_a_batch_stays_the_same_until_it_is_sent() -> None:
    waiting = queue()
    waiting.add(record("a"))
    first = waiting.batch()
    waiting.add(record("b"))
    assert waiting.batch() == first
    assert len(waiting) == 2
    assert sent(waiting) == [(1, ["a"]), (2, ["b"])]


def test_without_room_the_oldest_that_is_in_no_batch_goes_and_is_counted() -> None:
    waiting = queue(batch_records=1, most_records=3)
    waiting.add(record("under-way"))
    waiting.batch()
    assert [waiting.add(record(name)) for name in "abcd"] == [False, False, True, True]
    assert (len(waiting), waiting.lost) == (3, 2)
    assert [names for _, names in sent(waiting)] == [["under-way"], ["c"], ["d"]]


def test_what_is_given_up_is_counted_with_the_batch_under_way() -> None:
    waiting = queue()
    for name in "abc":
        waiting.add(record(name))
    waiting.batch()
    assert (waiting.give_up(), waiting.lost, waiting.batch()) == (3, 3, None)
