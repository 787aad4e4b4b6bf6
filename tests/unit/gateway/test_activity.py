"""What a gateway says of what it was asked: nothing twice, nothing lost."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from services.gateway.core.activity import Activity, ActivityPolicy
from shared.contracts import catalog
from shared.contracts.codec import decode, encode
from shared.messages.activity import AdapterActivity, GatewayActivity, PoolActivity
from shared.messages.usage import BASE, MOST_BUSY
from tests.unit.gateway.samples import POOL


def activity(**policy: float) -> Activity:
    return Activity("gateway-0", ActivityPolicy(**policy), 0.0)  # type: ignore[arg-type]


def taken(folded: Activity, now_s: float) -> GatewayActivity:
    message = folded.take(now_s)
    assert message is not None
    return decode(catalog.GATEWAY_ACTIVITY, encode(catalog.GATEWAY_ACTIVITY, message))


def test_what_happened_is_said_once() -> None:
    folded = activity()
    folded.began(POOL, "acme-1")
    folded.first_token(POOL, "acme-1", 1.0)
    folded.first_token(POOL, "acme-1", 1.0)
    folded.first_token(POOL, BASE, 1.2)
    folded.tokens(POOL, "acme-1", 3)
    folded.tokens(POOL, BASE, 2)
    folded.finished(POOL, "acme-1")
    folded.refused(POOL)
    assert taken(folded, 1.0) == GatewayActivity(
        gateway_id="gateway-0",
        sequence=1,
        interval_s=1.0,
        pools={
            POOL: PoolActivity(
                requests=1, refused=1, first_tokens=3, late_first_tokens=1, tokens=5,
                adapters={
                    "acme-1": AdapterActivity(requests=1, finished=1, tokens=3, first_tokens={0: 2}),
                    BASE: AdapterActivity(tokens=2, first_tokens={2: 1}),
                },
            )
        },
    )  # fmt: skip
    assert folded.take(2.0) is None


def test_silence_is_told_from_idleness_every_ten_seconds() -> None:
    folded = activity()
    said = [(second, message) for second in range(1, 26) if (message := folded.take(float(second))) is not None]
    assert [(second, message.sequence, message.pools) for second, message in said] == [(10, 1, {}), (20, 2, {})]
    assert {message.interval_s for _, message in said} == {1.0}


def test_only_the_busiest_are_named_and_all_are_counted() -> None:
    folded = activity(most_adapters=2)
    for pool_id, adapter_id, tokens in (("p", "a", 1), ("p", "b", 5), ("q", "c", 3), ("q", "d", 2)):
        folded.began(pool_id, adapter_id)
        folded.tokens(pool_id, adapter_id, tokens)
    pools = taken(folded, 1.0).pools
    assert {pool_id: set(pool.adapters) for pool_id, pool in pools.items()} == {"p": {"b"}, "q": {"c"}}
    assert {pool_id: (pool.requests, pool.tokens) for pool_id, pool in pools.items()} == {"p": (2, 6), "q": (2, 5)}


def test_the_largest_message_fits_the_bus() -> None:
    folded = activity()
    for number in range(2 * MOST_BUSY):
        folded.began(POOL, f"{number:0>128}")
        folded.tokens(POOL, f"{number:0>128}", 10**6)
    message = taken(folded, 1.0)
    assert len(message.pools[POOL].adapters) == MOST_BUSY
    assert len(encode(catalog.GATEWAY_ACTIVITY, message)) < 1 << 20


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("tokens"), st.sampled_from(["p", "q"]), st.sampled_from("abc"), st.integers(1, 9)),
            st.just(("take", "", "", 0)),
        )
    )
)
def test_the_sums_of_all_messages_are_what_was_streamed(events: list[tuple[str, str, str, int]]) -> None:
    folded, now_s = activity(), 0.0
    streamed: Counter[tuple[str, str]] = Counter()
    said: Counter[tuple[str, str]] = Counter()
    for what, pool_id, adapter_id, tokens in [*events, ("take", "", "", 0)]:
        if what == "tokens":
            folded.tokens(pool_id, adapter_id, tokens)
            streamed[pool_id, adapter_id] += tokens
            continue
        now_s += 1.0
        message = folded.take(now_s)
        for pool, each in message.pools.items() if message else ():
            assert each.tokens == sum(adapter.tokens for adapter in each.adapters.values())
            for name, adapter in each.adapters.items():
                said[pool, name] += adapter.tokens
    assert said == streamed
