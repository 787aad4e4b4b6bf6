"""From one base model to another: six adapters move, one is refused, the registry dies, everything comes to its end."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from services.registry.core.base_migration.moves import Migration
from shared.contracts import catalog
from tests.support.registry_place import Place
from tests.support.registry_watch import Heard, record_is, value_is
from tests.support.registry_world import FakeReplica
from tests.support.two_bases import DATASET, NEW, OLD, Moved, TwoPools, alias, two_bases


@pytest.fixture
async def fleet(place: Place) -> TwoPools:
    fleet = TwoPools()
    await fleet.serve(place)
    return fleet


# -- the whole story -----------------------------------------------------------------------------------


async def test_six_adapters_move_to_another_base(
    place: Place, fleet: TwoPools, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = await Heard().follow(place.broker.connect("pipeline"), catalog.ADAPTER_RETRAIN_REQUESTED)
    async with two_bases(place) as moved:
        await moved.bring(1, 2, 3, 4, 5, 6)
        await moved.bring(7, alias=None)
        migration_id = await moved.started()
        await asked_for(asked)
        await trained_but_one(moved, migration_id, fleet.new)
        await two_cut_over(moved, migration_id, fleet.new)
        await dead_in_between(moved, migration_id, monkeypatch)
    async with two_bases(place) as moved:
        await the_rest_and_one_back(moved, migration_id)
        await no_end_yet(moved, migration_id)
        await the_end(moved, migration_id)
    gateway, worker = place.broker.connect("gateway"), place.broker.connect("replica_worker")
    await value_is(gateway, catalog.BASE_MODEL, OLD.base_model_hash, lambda base: base is None)
    await record_is(worker, "v1", None)


async def asked_for(asked: Heard) -> None:
    requests = {one.adapter_id: one for one in await asked.first(6)}
    assert sorted(requests) == ["v1", "v2", "v3", "v4", "v5", "v6"]
    first = requests["v1"]
    assert (first.aliases, first.dataset_uri, first.gpu_hours) == ((alias(1),), DATASET, 0.5)


async def trained_but_one(moved: Moved, migration_id: str, replica: FakeReplica) -> None:
    for number in (1, 2, 4, 5, 6):
        await moved.trained(f"v{number}", seed=10 + number)
    replica.passed = False
    await moved.refused("v3", seed=13)
    replica.passed = True
    items = await moved.settled(migration_id, v1="trained", v2="trained", v3="failed", v6="trained", v7="planned")
    assert "its successor v3-bad is failed" in items["v3"]["reason"]
    assert items["v1"]["successor_id"] == "v1-new"
    refused = await moved.post(migration_id, "cutover", alias=alias(3))
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "successor_not_ready")


async def two_cut_over(moved: Moved, migration_id: str, replica: FakeReplica) -> None:
    """The other aliases mean what they meant: both bases serve."""
    for number in (1, 2):
        cut = await moved.post(migration_id, "cutover", alias=alias(number), by="ann")
        assert (cut.json()["changed"], cut.json()["previous_adapter_id"]) == (True, f"v{number}")
        again = await moved.post(migration_id, "cutover", alias=alias(number))
        assert (again.json()["changed"], again.json()["adapter_id"]) == (False, f"v{number}-new")
    assert [order.adapter_id for order in replica.loaded] == ["v1-new", "v2-new"]
    assert [await moved.means(alias(number)) for number in (1, 2, 3, 4)] == ["v1-new", "v2-new", "v3", "v4"]


async def dead_in_between(moved: Moved, migration_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An alias has moved, and nothing that follows happens in this process any more."""

    async def dead(migration: Migration, adapter_ids: Sequence[str]) -> None:
        return None

    monkeypatch.setattr(moved.here.registry.moving.sweep, "_settle", dead)
    assert (await moved.post(migration_id, "cutover", alias=alias(4))).status_code == 200
    assert await moved.means(alias(4)) == "v4-new"
    assert (await moved.items(migration_id))["v4"]["state"] == "trained"


async def the_rest_and_one_back(moved: Moved, migration_id: str) -> None:
    items = await moved.settled(migration_id, v1="cut_over", v2="cut_over", v4="cut_over", v5="trained")
    assert (items["v4"]["aliases"], items["v4"]["moved"]) == ([], [alias(4)])
    for number in (4, 5, 6):
        assert (await moved.post(migration_id, "cutover", alias=alias(number))).status_code == 200
    for changed in (True, False):
        back = await moved.post(migration_id, "rollback", alias=alias(1), reason="customers complain")
        assert (back.json()["adapter_id"], back.json()["changed"]) == ("v1", changed)
    await moved.settled(migration_id, v1="rolled_back", v5="cut_over", v6="cut_over")
    found = (await moved.status(migration_id))["progress"]
    assert (found["aliases_moved"], found["aliases_left"], found["untrained"]) == (4, 2, 1)
    assert (found["gpu_hours_left"], found["usd_left"]) == (0.5, 1.25)


async def no_end_yet(moved: Moved, migration_id: str) -> None:
    error = (await moved.post(migration_id, "finish")).json()["error"]
    assert error["code"] == "base_model_in_use"
    assert [one["message"] for one in error["defects"]] == [
        f"Alias {alias(1)} means v1.", f"Alias {alias(3)} means v3.",
    ]  # fmt: skip
    assert await moved.here.status("v2") == "active"
    assert (await moved.status(migration_id))["state"] == "running"


async def the_end(moved: Moved, migration_id: str) -> None:
    assert (await moved.post(migration_id, "retry", adapter_id="v3")).json()["state"] == "requested"
    await moved.trained("v3", seed=23)
    await moved.settled(migration_id, v3="trained")
    for number in (1, 3):
        assert (await moved.post(migration_id, "cutover", alias=alias(number))).status_code == 200
    for _ in range(2):
        ended = await moved.post(migration_id, "finish", by="ann", reason="all have moved")
        assert (ended.status_code, ended.json()["state"], ended.json()["left"]) == (200, "finished", 0)
    assert {item["state"] for item in (await moved.items(migration_id)).values()} == {"done"}
    for number in range(1, 8):
        assert await moved.here.status(f"v{number}") == "retired"
    for number in range(1, 7):
        assert await moved.means(alias(number)) == f"v{number}-new"


# -- commands ------------------------------------------------------------------------------------------


async def test_every_command_may_be_repeated(place: Place, fleet: TwoPools) -> None:
    told = await Heard().follow(place.broker.connect("pipeline"), catalog.MIGRATION_MOVED)
    async with two_bases(place) as moved:
        await moved.bring(1)
        first = await moved.start(by="ann", reason="a better base")
        again = await moved.start()
        assert (first.status_code, again.status_code, again.json()) == (201, 200, first.json())
        migration_id = first.json()["migration_id"]
        await moved.settled(migration_id, v1="requested")
        for change, state in (("hold", "held"), ("resume", "running"), ("cancel", "cancelled")):
            turned = [(await moved.post(migration_id, change, by="bob", reason=change)).json() for _ in range(2)]
            assert turned[0] == turned[1]
            assert (turned[0]["state"], turned[0]["actor"], turned[0]["reason"]) == (state, "bob", change)
        refused = await moved.post(migration_id, "resume")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "migration_cancelled")
        assert (await moved.start()).status_code == 201
        states = [one.state for one in await told.first(6) if one.adapter_id == "" and one.migration_id == migration_id]
        assert states == ["running", "held", "running", "cancelled"]


async def test_a_held_migration_asks_for_nothing_and_moves_nothing_but_back(place: Place, fleet: TwoPools) -> None:
    async with two_bases(place) as moved:
        await moved.bring(1)
        migration_id = await moved.started()
        await moved.trained("v1", seed=11)
        await moved.settled(migration_id, v1="trained")
        await moved.post(migration_id, "cutover", alias=alias(1))
        await moved.post(migration_id, "hold")
        await moved.bring(2)
        items = await moved.until(migration_id, lambda items: items["v2"]["aliases"] == [alias(2)])
        assert (items["v1"]["state"], items["v2"]["state"]) == ("cut_over", "planned")
        for change, said in (("cutover", {"alias": alias(2)}), ("retry", {"adapter_id": "v2"}), ("finish", {})):
            refused = await moved.post(migration_id, change, **said)
            assert (refused.status_code, refused.json()["error"]["code"]) == (409, "migration_held")
        assert (await moved.post(migration_id, "rollback", alias=alias(1))).json()["adapter_id"] == "v1"
        await moved.post(migration_id, "resume")
        await moved.settled(migration_id, v1="rolled_back", v2="requested")


async def test_what_cannot_be_trained_again_is_held_and_what_takes_too_long_is_overdue(
    place: Place, fleet: TwoPools
) -> None:
    async with two_bases(place, retrain_deadline_s=1e-6) as moved:
        await moved.bring(1, dataset_uri=None)
        await moved.bring(2)
        migration_id = await moved.started()
        items = await moved.settled(migration_id, v1="held", v2="requested")
        assert "without a dataset_uri" in items["v1"]["reason"]
        assert (items["v1"]["overdue"], items["v2"]["overdue"]) == (False, True)
        assert (await moved.status(migration_id))["progress"]["overdue"] == 1
        await moved.trained("v1", seed=11)
        await moved.settled(migration_id, v1="trained", v2="requested")


async def test_no_alias_leaves_a_pool_that_serves_for_one_that_does_not(place: Place, fleet: TwoPools) -> None:
    async with two_bases(place) as moved:
        await moved.bring(1)
        migration_id = await moved.started()
        await moved.trained("v1", seed=11)
        fleet.down.add("replica-new")
        refused = await moved.post(migration_id, "cutover", alias=alias(1))
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "no_ready_replica")
        assert await moved.means(alias(1)) == "v1"
        assert (await moved.post(migration_id, "cutover", alias=alias(1), force=True)).status_code == 200
        assert await moved.means(alias(1)) == "v1-new"


async def test_the_end_takes_as_many_calls_as_it_needs_and_can_be_called_off(
    place: Place, fleet: TwoPools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.registry.base_migration.move_endings.PAGE", 1)
    monkeypatch.setattr("services.registry.base_migration.move_endings._PAGES_A_CALL", 1)
    async with two_bases(place) as moved:
        await moved.bring(1, 2, 3, alias=None)
        migration_id = await moved.started()
        ended = (await moved.post(migration_id, "finish")).json()
        assert (ended["state"], ended["left"], await moved.here.status("v1")) == ("finishing", 2, "retired")
        await moved.here.admin.put(f"/internal/aliases/{alias(3)}", json={"adapter_id": "v3"})
        refused = await moved.post(migration_id, "finish")
        assert refused.status_code == 409
        assert (await moved.status(migration_id))["state"] == "running"
        await moved.here.admin.delete(f"/internal/aliases/{alias(3)}")
        left = [(await moved.post(migration_id, "finish")).json()["left"] for _ in range(2)]
        assert (left, (await moved.status(migration_id))["state"]) == ([1, 0], "finished")


async def test_an_alias_whose_version_nobody_has_taken_in_yet_is_not_taken_for_moved(
    place: Place, fleet: TwoPools
) -> None:
    async with two_bases(place, migration_sweep_s=1e6) as moved:
        await moved.bring(1)
        migration_id = await moved.started()
        await moved.here.activated("v2", seed=2, predecessor_id="v1", dataset_uri=DATASET)
        said = {"adapter_id": "v2"}
        assert (await moved.here.admin.put(f"/internal/aliases/{alias(1)}", json=said)).status_code == 200
        refused = await moved.post(migration_id, "cutover", alias=alias(1))
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "successor_not_ready")
        assert (await moved.items(migration_id))["v2"]["aliases"] == [alias(1)]


async def test_only_what_has_changed_is_looked_at_again(
    place: Place, fleet: TwoPools, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_bases(place) as moved:
        await moved.bring(1, 2, 3)
        migration_id = await moved.started()
        await moved.settled(migration_id, v1="requested", v2="requested", v3="requested")
        sweep, looked_at = moved.here.registry.moving.sweep, set[str]()
        step = sweep._step

        async def noted(migration: Migration, adapter_ids: Sequence[str]) -> list[str]:
            looked_at.update(adapter_ids)
            return await step(migration, adapter_ids)

        await moved.until(migration_id, lambda _: migration_id in sweep._glances)
        monkeypatch.setattr(sweep, "_step", noted)
        await moved.trained("v1", seed=11)
        await moved.settled(migration_id, v1="trained")
        await moved.here.admin.delete(f"/internal/aliases/{alias(2)}")
        await moved.settled(migration_id, v2="planned")
        assert looked_at == {"v1", "v1-new", "v2"}


async def test_a_rank_class_that_is_added_frees_what_was_held(place: Place, fleet: TwoPools) -> None:
    async with two_bases(place) as moved:
        async with moved.here.registry.database.write() as connection:
            narrow = f"UPDATE base_models SET rank_classes = '[2]' WHERE base_model_hash = '{moved.new_hash}'"
            await connection.exec_driver_sql(narrow)
        await moved.bring(1)
        migration_id = await moved.started()
        await moved.settled(migration_id, v1="held")
        wide = msgspec.to_builtins(msgspec.structs.replace(NEW, rank_classes=(2, *NEW.rank_classes)))
        assert (await moved.here.admin.put(f"/internal/base-models/{moved.new_hash}", json=wide)).status_code == 200
        await moved.settled(migration_id, v1="requested")


async def test_a_base_stays_while_a_guard_would_go_back_to_it(place: Place, fleet: TwoPools) -> None:
    async with two_bases(place) as moved:
        await moved.bring(1)
        migration_id = await moved.started()
        await moved.trained("v1", seed=11)
        await moved.settled(migration_id, v1="trained")
        await moved.post(migration_id, "cutover", alias=alias(1))
        said = {"adapter_id": "v1-new", "guard": {"max_error_rate": 0.5}}
        assert (await moved.here.admin.put(f"/internal/aliases/{alias(1)}", json=said)).status_code == 200
        refused = (await moved.post(migration_id, "finish")).json()["error"]["defects"]
        assert [one["message"] for one in refused] == [f"A guard of alias {alias(1)} goes back to v1."]
        assert await moved.here.status("v1") == "active"


# -- the plan, and what is refused ---------------------------------------------------------------------


async def test_a_plan_says_who_is_concerned_and_changes_nothing(place: Place, fleet: TwoPools) -> None:
    async with two_bases(place) as moved:
        await moved.bring(1)
        await moved.bring(2, dataset_uri=None)
        await moved.bring(3, alias=None)
        now_s = moved.here.registry.moving.sweep._clock.wall_s()
        async with moved.here.registry.database.write() as connection:
            row = f"('v1', {now_s - 3600}, 'p', 144, 0, 0, 0)"
            await connection.exec_driver_sql(f"INSERT INTO adapter_stats VALUES {row}")
        found = await moved.plan(gpu_hours="2", usd_per_gpu_hour="3")
        one, two, three = found["rows"]
        assert (one["action"], one["aliases"], one["gpu_hours"], one["usd"]) == ("retrain", [alias(1)], 2.0, 6.0)
        assert (one["owners"], one["dataset_uri"], one["tenant_id"]) == (["replica-old"], DATASET, "acme")
        assert 140 < one["requests_per_day"] <= 150
        assert (two["action"], three["action"], three["reason"]) == ("blocked", "retire", "no alias means it")
        totals = found["totals"]
        assert (totals["adapters"], totals["aliases"], totals["gpu_hours"], totals["usd"]) == (3, 2, 2.0, 6.0)
        pages = [await moved.plan(limit="2"), await moved.plan(limit="2", after="v2")]
        assert [[row["adapter_id"] for row in page["rows"]] for page in pages] == [["v1", "v2"], ["v3"]]
        assert ([page["next"] for page in pages], pages[1]["totals"]) == (["v2", None], None)
        assert (await moved.here.admin.get("/internal/migrations")).json() == {"migrations": []}


async def test_what_makes_no_sense_is_refused(place: Place, fleet: TwoPools) -> None:
    async with two_bases(place) as moved:
        for said, status, code in (
            ({"from_base_model_hash": "0" * 64}, 404, "base_model_unknown"),
            ({"to_base_model_hash": OLD.base_model_hash}, 422, "same_base_model"),
            ({"gpu_hours": -1}, 422, "invalid_cost"),
        ):
            refused = await moved.start(**said)
            assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)
        migration_id = await moved.started()
        back = {"from_base_model_hash": moved.new_hash, "to_base_model_hash": OLD.base_model_hash}
        assert (await moved.start(**back)).json()["error"]["code"] == "migration_open"
        for change, said, code in (
            ("cutover", {"alias": alias(9)}, "alias_not_in_migration"),
            ("rollback", {"alias": alias(9)}, "alias_not_in_migration"),
            ("retry", {"adapter_id": "v9"}, "adapter_not_in_migration"),
            ("pause", {}, "not_served"),
        ):
            refused = await moved.post(migration_id, change, **said)
            assert (refused.status_code, refused.json()["error"]["code"]) == (404, code)
        for change, said in (("hold", {}), ("finish", {}), ("cutover", {"alias": alias(9)})):
            refused = await moved.post("nobody", change, **said)
            assert (refused.status_code, refused.json()["error"]["code"]) == (404, "migration_unknown")
        answer = await moved.here.admin.get(f"/internal/migrations/{migration_id}/items?state=lost")
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_query")
        retired = await moved.here.admin.post(f"/internal/base-models/{OLD.base_model_hash}/retire")
        assert [one["message"] for one in retired.json()["error"]["defects"]] == [f"Migration {migration_id} is open."]
