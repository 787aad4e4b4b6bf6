"""Every list can be read page by page, and the pages are the list."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.support.adapter_files import BASE
from tests.support.registry_errors import error_of
from tests.support.registry_world import World

LISTS = {"tenants": "tenant_id", "keys": "key_id", "base-models": "name", "adapters": "adapter_id"}


async def fill(here: World) -> None:
    """Five of everything, one of which `prepare` made."""
    for number in range(4):
        await here.admin.post("/internal/tenants", json={"tenant_id": f"t{number}"})
        other = msgspec.structs.replace(BASE, base_model_hash=f"{number:064x}", name=f"base-{number}")
        path = f"/internal/base-models/{other.base_model_hash}"
        assert (await here.admin.put(path, json=msgspec.to_builtins(other))).status_code == 201
    for number in range(5):
        assert (await here.admin.post("/internal/keys", json={"tenant_id": "acme"})).status_code == 201
        assert (await here.post(here.announce(f"v{number}", seed=number))).status_code == 201


async def page(here: World, of: str, **asked: str | int) -> tuple[list[str], str | None]:
    answer = await here.admin.get(f"/internal/{of}", params=asked)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return [row[LISTS[of]] for row in found[of.replace("-", "_")]], found["next"]


async def test_the_pages_of_a_list_are_the_list(alone: World) -> None:
    await fill(alone)
    for of in LISTS:
        whole, following = await page(alone, of)
        assert (len(whole), following, whole) == (5, None, sorted(whole)), of
        first, after = await page(alone, of, limit=2)
        second, more = await page(alone, of, limit=2, after=after or "")
        third, end = await page(alone, of, limit=2, after=more or "")
        assert (first + second + third, end) == (whole, None), of


async def test_a_page_of_no_size_is_422(alone: World) -> None:
    for of in LISTS:
        for limit in ("0", "1001", "-1", "x", "١", "99999"):
            assert error_of(await alone.admin.get(f"/internal/{of}", params={"limit": limit}), 422)["param"] == "limit"
