"""How much tenants and keys may ask for: kept, told to gateways, and refused where it makes no sense."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest

from services.registry.core import limits
from services.registry.core.deployment.aliases import Denied
from services.registry.core.limits import Change
from services.registry.desired_state import desired_state
from shared.bus.memory import MemoryBroker
from shared.bus.port import Bus
from shared.contracts import catalog
from shared.messages.desired import Limits
from shared.messages.identity import key_of
from tests.support.registry_errors import error_of
from tests.support.registry_watch import value_is
from tests.support.registry_world import World

FREE = {"requests_per_min": None, "tokens_per_min": None, "streams": None}


@pytest.fixture
def gateway(broker: MemoryBroker) -> Bus:
    return broker.connect("gateway")


async def change(alone: World, path: str, **named: Any) -> httpx.Response:
    return await alone.admin.patch(f"/internal/{path}/limits", json=named)


async def make_key(alone: World) -> dict[str, Any]:
    await alone.admin.post("/internal/tenants", json={"tenant_id": "acme", "weight": 2.0})
    made: dict[str, Any] = (await alone.admin.post("/internal/keys", json={"tenant_id": "acme"})).json()
    return made


async def test_gateways_hear_a_tenants_limits_and_a_keys(alone: World, gateway: Bus) -> None:
    key = await make_key(alone)
    answer = await change(alone, "tenants/acme", requests_per_min=60, streams=4)
    assert answer.json()["limits"] == {**FREE, "requests_per_min": 60, "streams": 4}
    assert answer.json()["weight"] == 2.0, "what has nothing to do with limits stays"
    await change(alone, f"keys/{key['key_id']}", tokens_per_min=9_000)
    own = Limits(requests_per_min=60, streams=4)
    await value_is(gateway, catalog.TENANT, "acme", lambda record: (record.limits, record.weight) == (own, 2.0))
    in_bucket = key_of(key["api_key"])
    await value_is(gateway, catalog.API_KEY, in_bucket, lambda record: record.limits == Limits(tokens_per_min=9_000))
    shown = (await alone.admin.get("/internal/tenants/acme/limits")).json()
    of_key = {"key_id": key["key_id"], "tenant_id": "acme", "limits": {**FREE, "tokens_per_min": 9_000}}
    assert shown == {"tenant_id": "acme", "limits": {**FREE, "requests_per_min": 60, "streams": 4}, "keys": [of_key]}


async def test_what_is_not_named_stays_and_null_takes_a_limit_away(alone: World) -> None:
    await make_key(alone)
    await change(alone, "tenants/acme", requests_per_min=60, tokens_per_min=1_000)
    answer = await change(alone, "tenants/acme", requests_per_min=None, streams=2)
    assert answer.json()["limits"] == {**FREE, "tokens_per_min": 1_000, "streams": 2}
    await alone.admin.post("/internal/tenants", json={"tenant_id": "acme", "weight": 3.0})
    [tenant] = (await alone.admin.get("/internal/tenants")).json()["tenants"]
    assert (tenant["weight"], tenant["limits"]["tokens_per_min"]) == (3.0, 1_000)


async def test_a_registry_that_looks_again_tells_the_same(alone: World) -> None:
    """What reconciliation compares the buckets with has the limits too, or it would take them away."""
    key = await make_key(alone)
    await change(alone, "tenants/acme", streams=4)
    await change(alone, f"keys/{key['key_id']}", streams=1)
    async with alone.registry.database.read() as connection:
        wanted = {channel.name: values for channel, values in await desired_state(connection)}
    assert wanted["tenant"][("acme",)].limits == Limits(streams=4)
    assert wanted["api_key"][(key_of(key["api_key"]),)].limits == Limits(streams=1)


@pytest.mark.parametrize(
    ("path", "named", "answered", "word"),
    [
        ("tenants/acme", {"streams": 0}, (422, "limit_invalid"), "streams is 0; it must be from 1"),
        ("tenants/acme", {"tokens_per_min": 10**13}, (422, "limit_invalid"), "or null for no limit"),
        ("tenants/acme", {"streams": True}, (422, "invalid_body"), "streams"),
        ("tenants/acme", {"requests": 5}, (422, "invalid_body"), "requests"),
        ("tenants/globex", {"streams": 1}, (404, "tenant_unknown"), "There is no tenant globex."),
        ("keys/nobodys", {"streams": 1}, (404, "key_unknown"), "There is no key nobodys."),
    ],
)
async def test_nonsense_is_refused_and_changes_nothing(
    alone: World, path: str, named: dict[str, Any], answered: tuple[int, str], word: str
) -> None:
    await make_key(alone)
    status, code = answered
    error = error_of(await change(alone, path, **named), status)
    assert error["code"] == code
    assert word in error["message"].replace('"', "").replace("'", "")
    assert (await alone.admin.get("/internal/tenants/acme/limits")).json()["limits"] == FREE


def test_the_first_wrong_limit_is_named() -> None:
    denied = limits.changed(Limits(), msgspec.convert({"streams": -1, "tokens_per_min": 5}, Change))
    assert isinstance(denied, Denied)
    assert denied.field == "streams"
