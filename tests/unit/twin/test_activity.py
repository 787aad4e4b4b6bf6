"""What a gateway of the twin tells of its customers: a real one's count, in the pools that were asked and served."""

from __future__ import annotations

from loadtest.twin.activity import Activity
from loadtest.twin.book import Book
from loadtest.twin.request import Attempt, Request
from loadtest.twin.scenario import PoolShape
from loadtest.workloads.call import Call
from shared.latencies import bucket_of
from shared.messages.activity import AdapterActivity

RECORD = Book((PoolShape(pool_id="home"),), 1).record(0)
NAME = RECORD.adapter_id


def request(pool_id: str) -> Request:
    call = Call(at_s=0.0, adapter=0, tenant=0, prompt_tokens=10, output_tokens=50, max_tokens=50, stream=True)
    return Request(
        number=0, gateway=0, call=call, began_s=0.0, record=RECORD, tokens=60, pool_ids=("home",), merged_pool_ids=(),
        pool_id=pool_id,
    )  # fmt: skip


def test_a_request_counts_in_the_pool_that_serves_it() -> None:
    activity, served = Activity("g", 1.0, dict), request("merged")
    activity.began(served)
    activity.first_token(served, 1.5)
    served.outcome, served.first_s = "ok", 1.5
    activity.ended(served)
    told = activity.message((), 1.0)
    assert told is not None
    assert set(told.pools) == {"merged"}
    pool = told.pools["merged"]
    assert pool.adapters == {NAME: AdapterActivity(requests=1, finished=1, tokens=50, first_tokens={bucket_of(1.5): 1})}
    assert (pool.requests, pool.first_tokens, pool.late_first_tokens, pool.tokens) == (1, 1, 1, 50)


def test_tokens_count_while_they_come_and_once() -> None:
    activity, live = Activity("g", 1.0, lambda: {"r": 30}), request("home")
    live.first_s = 0.5
    live.attempt = Attempt(
        adapter=RECORD.key, prompt_tokens=10, output_tokens=50, id="0-1", request=live, replica_id="r", since_step=10
    )
    live.attempt.produced = 1
    first = activity.message([live], 1.0)
    assert first is not None
    assert first.pools["home"].tokens == 21
    live.outcome = "ok"
    activity.ended(live)
    rest = activity.message((), 2.0)
    assert rest is not None
    assert rest.pools["home"].tokens == 29
    assert (first.sequence, rest.sequence, rest.interval_s) == (1, 2, 1.0)


def test_a_quiet_gateway_says_so_now_and_then_as_a_real_one_does() -> None:
    activity = Activity("g", 1.0, dict)
    assert [second for second in range(1, 25) if activity.message((), float(second)) is not None] == [10, 20]
