"""What people are told about the fleet, within what the bus can carry."""

from __future__ import annotations

import msgspec

from services.placement.core.decide import Facts, judge_all
from services.placement.core.fleet import fleet_view, owners_view
from services.placement.core.membership import MembershipPolicy, observe
from services.placement.core.plan import Held
from shared.contracts.catalog import FLEET
from shared.contracts.codec import decode_reply, encode_reply
from shared.contracts.streams import MAX_MESSAGE_BYTES
from shared.messages.identity import AdapterKey, key_of
from shared.messages.operations import AskOwners, FleetView
from tests.simulation.speakers import POOL, adapter, report

POLICY = MembershipPolicy()


def facts(*replica_ids: str, adapter_ids: tuple[str, ...] = (), held: dict[str, Held] | None = None) -> Facts:
    records = [adapter(adapter_id) for adapter_id in adapter_ids]
    return Facts(
        now_s=2.0,
        real_s=2.0,
        adapters={record.key: record for record in records},
        rank_classes={POOL: 16},
        seen={name: observe(None, report(name), 0.0) for name in replica_ids},
        drained=frozenset(),
        held=held or {},
    )


def view(known: Facts) -> FleetView:
    return fleet_view(known, judge_all(known, POLICY), {}, 1)


def test_the_largest_fleet_fits_the_bus() -> None:
    names = [f"replica-{number:03}-{'x' * 50}" for number in range(100)]
    keys = [AdapterKey(adapter_id=f"{number:03}{'y' * 125}", digest=key_of(str(number))) for number in range(400)]
    told = view(facts(*names, held={name: dict.fromkeys(keys, "ram") for name in names}))
    payload = encode_reply(FLEET, told)
    assert len(payload) < MAX_MESSAGE_BYTES
    assert decode_reply(FLEET, payload) == told
    assert {summary.ram for summary in told.replicas} == {400}


def test_a_small_fleet_lists_200_of_each_fastest_first() -> None:
    keys = [AdapterKey(adapter_id=f"a{number:03}", digest=key_of(str(number))) for number in range(300)]
    held = {**dict.fromkeys(keys[:299], "disk"), keys[299]: "gpu"}
    (summary,) = view(facts("r1", held={"r1": held})).replicas
    assert len(summary.adapters) == 200
    assert (summary.adapters[0].adapter_id, summary.adapters[0].tier) == ("a299", "gpu")
    assert (summary.gpu, summary.disk, summary.report_age_s) == (1, 299, 2.0)


def test_what_a_replica_says_of_its_memory_its_warmth_and_its_kind_is_shown() -> None:
    known = facts("r1")
    said = report("r1", kv_used_tokens=320, kv_total_tokens=640, warming=True, to_warm=3, gpu_kind="l4")
    (summary,) = view(msgspec.structs.replace(known, seen={"r1": observe(None, said, 0.0)})).replicas
    assert (summary.kv_used_tokens, summary.kv_total_tokens) == (320, 640)
    assert (summary.warming, summary.to_warm, summary.gpu_kind) == (True, 3, "l4")


def owners(known: Facts, adapter_id: str, pool_id: str = POOL) -> tuple[tuple[str, ...], str]:
    question = AskOwners(adapter_id=adapter_id, digest=key_of(adapter_id), pool_id=pool_id)
    found = owners_view(known, judge_all(known, POLICY), {}, question)
    return found.replica_ids, found.reason


def test_who_has_no_owner_is_told_why() -> None:
    assert owners(facts("r1"), "a") == ((), "adapter a is not on record as verified")
    assert owners(facts("r1", adapter_ids=("a",)), "a", "other") == ((), f"adapter a belongs to pool {POOL}")
    assert owners(facts(adapter_ids=("a",)), "a") == ((), f"pool {POOL} has no replica that can own adapters")


def test_owners_come_with_how_many_there_were_to_choose_from() -> None:
    found, reason = owners(facts("r1", "r2", "r3", adapter_ids=("a",)), "a")
    assert (len(found), reason) == (2, "first 2 of 3 by rendezvous hash")
