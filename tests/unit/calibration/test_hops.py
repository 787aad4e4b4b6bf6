"""Hops of an adapter: what is measured of them, and the line through it."""

from __future__ import annotations

import httpx
import pytest

from loadtest.calibration.hops import FASTEST_BYTES_PER_S, Hop, HopFailed, fit_ways, measure_hops


def test_a_hops_latency_and_speed_are_found_again() -> None:
    hops = [
        Hop(tier="disk", size_bytes=size, took_s=0.004 + size / 1e6 + noise)
        for size in (10_000, 100_000)
        for noise in (-0.001, 0.0, 0.5)
    ]
    way = fit_ways(hops)["disk"]
    assert way.latency_s == pytest.approx(0.004)
    assert way.bytes_per_s == pytest.approx(1e6)


def test_a_size_that_makes_no_difference_is_no_limit() -> None:
    way = fit_ways([Hop(tier="gpu", size_bytes=size, took_s=0.002) for size in (10, 1_000)])["gpu"]
    assert way.bytes_per_s == FASTEST_BYTES_PER_S
    assert way.latency_s == pytest.approx(0.002, abs=1e-6)


async def test_an_adapter_climbs_tier_by_tier_on_every_replica() -> None:
    told: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        tier = request.content.decode().strip("{}").rpartition(":")[2].strip('"')
        told.append(f"{request.url.path.split('/')[3]} {request.url.path.split('/')[-1]} {tier}".strip())
        return httpx.Response(200, json={})

    transport = httpx.MockTransport(answer)
    async with httpx.AsyncClient(base_url="http://fleet", transport=transport) as admin:
        hops = await measure_hops(admin, ("one", "two"), {"spare": 10}, rounds=1)
    climbed = ["unload", *(f"load {tier}" for tier in ("disk", "ram", "gpu") for _ in range(2))]
    assert told == [f"{replica} {each}" for replica in ("one", "two") for each in climbed]
    assert [hop.tier for hop in hops] == ["disk", "ram", "gpu"] * 2
    assert all(hop.took_s >= 0.0 for hop in hops)


async def test_a_fleet_that_refuses_is_quoted() -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(409, text="it is in use"))
    async with httpx.AsyncClient(base_url="http://fleet", transport=transport) as admin:
        with pytest.raises(HopFailed, match="409 it is in use"):
            await measure_hops(admin, ("one",), {"spare": 10}, rounds=1)
