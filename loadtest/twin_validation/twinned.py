"""The same workload on the twin of the same fleet."""

from __future__ import annotations

import msgspec

from loadtest.calibration.seen import Seen
from loadtest.calibration.stage import Customer, FleetShape
from loadtest.twin.measured import Measured
from loadtest.twin.outcome import Outcome
from loadtest.twin.scenario import Cast, Fault, PoolShape, Scenario
from loadtest.twin.twin import Twin
from loadtest.twin_validation.real import Played
from loadtest.twin_validation.workloads import KILLED, HeldOut
from loadtest.workloads.call import Call
from loadtest.workloads.calls import calls

RAM_BYTES, DISK_BYTES = 1 << 30, 8 << 30
"""Of an embedded fleet's replicas, unless it is told otherwise."""


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What the twin has to know of a fleet. Its customers are all that it serves."""

    shape: FleetShape
    customers: tuple[Customer, ...]
    measured: Measured


def scenario(known: Known, workload: HeldOut, played: Played, seed: int) -> Scenario:
    """Of a real run the twin is given what replicas held as it began, and how long prompts and answers turned out."""
    shape, records = known.shape, [each.record for each in known.customers]
    given = [_as_it_was(call, each) for call, each in zip(calls(workload.shape), played.seen, strict=True)]
    pool = PoolShape(
        pool_id=records[0].pool_id, replicas=shape.replicas, slots=shape.slots, rank=shape.rank,
        adapter_bytes=records[0].size_bytes, ram_bytes=RAM_BYTES, disk_bytes=DISK_BYTES,
        batch=msgspec.structs.replace(known.measured.batch, max_rows=shape.max_rows),
    )  # fmt: skip
    return Scenario(
        calls=lambda: given, customers=len(records), for_s=workload.shape.for_s, warm_up_s=workload.warm_up_s,
        seed=seed, pools=(pool,), cast=Cast(replicas=shape.replica_ids, adapters=tuple(records), held=played.held),
        timing=known.measured.timing, faults=_faults(workload, known.measured),
        full_wire=True,
    )  # fmt: skip


def run(known: Known, workload: HeldOut, played: Played, seed: int) -> Outcome:
    """Raises RuntimeError if an invariant of the twin did not hold."""
    outcome = Twin(scenario(known, workload, played, seed)).run()
    if outcome.broken:
        raise RuntimeError(f"the twin broke: {outcome.broken[0]}")
    return outcome


def _as_it_was(call: Call, seen: Seen) -> Call:
    """An answer that was cut off would have become as long as it was meant to."""
    tokens = seen.tokens if seen.outcome == "ok" else call.output_tokens
    return msgspec.structs.replace(call, prompt_tokens=seen.prompt_tokens or call.prompt_tokens, output_tokens=tokens)


def _faults(workload: HeldOut, measured: Measured) -> tuple[Fault, ...]:
    if workload.kill_at_s is None:
        return ()
    return (Fault(kind="death", at_s=workload.kill_at_s, for_s=measured.restart_s, replica=KILLED),)
