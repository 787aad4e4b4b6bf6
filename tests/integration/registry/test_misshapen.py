"""Events that are no announcements: answered where somebody can be told, and never in the way of the next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from services.registry.io import outbox_rows
from services.registry.io.database import DatabaseUnavailable
from shared.bus.port import Bus
from shared.contracts import catalog
from shared.contracts.channel import Channel
from tests.support.registry_watch import eventually, heard
from tests.support.registry_world import World


async def tell(pipeline: Bus, said: object) -> None:
    channel: Channel[Any, Any] = catalog.ADAPTER_REGISTERED
    await pipeline.publish(replace(channel, message=object), said)


async def test_its_sender_is_told_what_is_wrong_and_nothing_is_kept(here: World, pipeline: Bus) -> None:
    right = here.announce("v1")
    [rejected] = await heard(pipeline, catalog.ADAPTER_REJECTED)
    await tell(pipeline, {**msgspec.to_builtins(right), "alfa": 1})
    [found] = await rejected.first()
    assert (found.adapter_id, found.tenant_id) == ("v1", "acme")
    assert [(one.code, one.field) for one in found.defects] == [("invalid_announcement", "alfa")]
    assert await here.status("v1") is None
    await pipeline.publish(catalog.ADAPTER_REGISTERED, right)
    await here.reached("v1", "active")


async def test_its_sender_is_told_even_if_the_database_was_away(
    here: World, pipeline: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, outages = outbox_rows.append, iter([DatabaseUnavailable("planted")])

    async def stumbling(*arguments: Any) -> None:
        for outage in outages:
            raise outage
        await append(*arguments)

    monkeypatch.setattr(outbox_rows, "append", stumbling)
    [rejected] = await heard(pipeline, catalog.ADAPTER_REJECTED)
    await tell(pipeline, {"adapter_id": "v1", "tenant_id": "acme"})
    [found] = await rejected.first()
    assert found.adapter_id == "v1"
    assert next(outages, None) is None


async def test_one_that_does_not_say_whose_it_is_is_counted_and_dropped(here: World, pipeline: Bus) -> None:
    [rejected] = await heard(pipeline, catalog.ADAPTER_REJECTED)
    await tell(pipeline, {"adapter_id": "v1"})

    async def counted() -> bool:
        return (
            'lorafleet_registry_registrations_total{outcome="unreadable"} 1.0'
            in (await here.admin.get("/metrics")).text
        )

    await eventually(counted)
    await here.activated("v2")
    assert rejected.messages == []
