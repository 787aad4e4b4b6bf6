"""How busy adapters are, in coarse figures."""

from __future__ import annotations

from services.registry.core.traffic import Counted, news, pool_traffic, rounded
from shared.contracts.catalog import TRAFFIC
from shared.contracts.codec import decode, encode
from shared.messages.usage import MOST_BUSY, PoolTraffic


def counted(adapter_id: str, requests: int, pool_id: str = "p") -> Counted:
    return Counted(pool_id=pool_id, adapter_id=adapter_id, requests=requests)


def told(*traffic: PoolTraffic) -> dict[str, PoolTraffic]:
    """As placement reads it."""
    return {one.pool_id: decode(TRAFFIC, encode(TRAFFIC, one)) for one in traffic}


def test_rates_have_two_significant_digits() -> None:
    assert [rounded(rate) for rate in (0.0, 0.01234, 0.999, 1.26, 126.0)] == [0.0, 0.012, 1.0, 1.3, 130.0]


def test_the_busiest_come_first_and_not_more_than_a_message_holds() -> None:
    many = [counted(f"v{at:04}", at + 1) for at in range(MOST_BUSY + 10)]
    [traffic] = pool_traffic(many, 10.0, 5.0)
    assert (traffic.pool_id, traffic.at_s, len(traffic.requests_per_s)) == ("p", 5.0, MOST_BUSY)
    names = list(traffic.requests_per_s)
    assert (names[0], names[-1]) == (f"v{MOST_BUSY + 9:04}", "v0010")


def test_every_pool_is_its_own_and_a_merged_one_is_none() -> None:
    found = pool_traffic([counted("b", 4, "p2"), counted("a", 20), counted("c", 1, "p-mabc")], 10.0, 5.0)
    assert {one.pool_id: dict(one.requests_per_s) for one in found} == {"p": {"a": 2.0}, "p2": {"b": 0.4}}


def test_only_what_changed_visibly_is_news() -> None:
    [before] = pool_traffic([counted("a", 1_000)], 10.0, 5.0)
    known = told(before)
    assert news([], known) == []
    assert news(pool_traffic([counted("a", 1_004)], 10.0, 6.0), known) == []
    assert len(news(pool_traffic([counted("a", 1_100)], 10.0, 6.0), known)) == 1
    assert len(news(pool_traffic([counted("a", 1_000), counted("b", 1)], 10.0, 6.0), known)) == 1
    assert len(news(pool_traffic([counted("a", 1_000, "new")], 10.0, 6.0), known)) == 1
