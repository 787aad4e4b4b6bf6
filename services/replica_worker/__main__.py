"""`python -m services.replica_worker`: wiring, and nothing else."""

from __future__ import annotations

import asyncio
import os
import secrets
from typing import TYPE_CHECKING

import msgspec

from services.replica_worker.app import Replica
from services.replica_worker.assembly import Outside
from services.replica_worker.control.merging import MergePlan
from services.replica_worker.core.frames import FrameBook
from services.replica_worker.core.residency import ResidencyLog
from services.replica_worker.engine.port import Engine, EngineFailed
from services.replica_worker.io.disk import DiskFiles
from services.replica_worker.reporting.metering import Meters
from services.replica_worker.reporting.residency import ResidencyTeller
from services.replica_worker.requests.frame_sender import FrameSender
from services.replica_worker.settings import PREFIX, Settings
from services.replica_worker.standing import Identity
from services.replica_worker.text.tokenizer import Tokenizer
from shared.base_model import base_model_hash
from shared.bus.nats import BusOptions, connect
from shared.bus.port import Bus, Change
from shared.contracts.catalog import ADAPTER
from shared.messages.desired import AdapterRecord
from shared.messages.pools import merged_pool_id, pool_id
from shared.runtime import garbage, logs
from shared.runtime.clock import SystemClock
from shared.runtime.metrics import Metrics
from shared.runtime.probe import ProbeServer
from shared.runtime.service import Part, periodically, run_main, run_until_stopped
from shared.runtime.settings import SettingsError, read
from shared.runtime.tracing import tracer_to
from shared.store.open import store_from_url
from shared.store.port import ObjectStore

if TYPE_CHECKING:
    from services.replica_worker.engine.torch.policy import TorchPolicy

TICK_S = 0.1
BEAT_S = 0.5
REPORT_S = 1.0
STIR_S = 2.0
SNAPSHOT_S = 10.0
_MERGED = "merged"
"""The folder of the cache with the merged model, as large as the base and in nobody's budget."""
_log = logs.get_logger(__name__)


def build_engine(settings: Settings, base_hash: str, tokenizer: Tokenizer) -> Engine:
    """Engines are imported where they are built: none of them needs the libraries of another."""
    if settings.engine == "vllm":
        return _vllm_engine(settings)
    if settings.engine == "timed":
        from services.replica_worker.engine.timed.engine import TimedEngine
        from services.replica_worker.engine.timed.policy import TimedPolicy
        from services.replica_worker.engine.torch.eos import eos_token_ids

        return TimedEngine(
            TimedPolicy(
                base_model_hash=base_hash,
                slots=settings.slots,
                rank_limit=settings.rank_limit,
                max_rows=settings.max_rows,
                max_context_tokens=settings.max_context_tokens,
                vocabulary_size=tokenizer.vocabulary_size,
                eos_token_ids=eos_token_ids(settings.model_folder),
            )
        )
    from services.replica_worker.engine.torch.policy import ENVIRONMENT

    os.environ.update({**ENVIRONMENT, **os.environ})
    from services.replica_worker.engine.torch.engine import TorchEngine

    return TorchEngine(settings.model_folder, _torch_policy(settings))


def _torch_policy(settings: Settings) -> TorchPolicy:
    from services.replica_worker.engine.torch.policy import TorchPolicy

    policy = TorchPolicy(
        slots=settings.slots,
        rank_limit=settings.rank_limit,
        max_rows=settings.max_rows,
        max_context_tokens=settings.max_context_tokens,
        dtype=settings.dtype,
        threads=settings.threads,
        packed_weights=settings.packed_weights,
    )
    if settings.kv_budget_bytes:
        policy = msgspec.structs.replace(policy, kv_bytes=settings.kv_budget_bytes)
    return policy


def build_merged(settings: Settings, record: AdapterRecord) -> tuple[Engine, MergePlan]:
    """The engine for the merged weights, which has the slots' memory for keys and values; and what it is compared
    with, which has room for this adapter, whatever its rank, and one short prompt."""
    from services.replica_worker.engine.torch.policy import ENVIRONMENT

    os.environ.update({**ENVIRONMENT, **os.environ})
    from services.replica_worker.engine.torch.engine import TorchEngine
    from services.replica_worker.engine.torch.layout import bytes_of_slots

    folder, policy = settings.cache_folder / _MERGED, _torch_policy(settings)
    spare_bytes = bytes_of_slots(settings.model_folder, policy)
    merged = msgspec.structs.replace(policy, slots=1, rank_limit=1, kv_bytes=policy.kv_bytes + spare_bytes)
    rank, context_tokens = max((record.rank, *record.rank_pattern.values())), min(512, policy.max_context_tokens)
    small = msgspec.structs.replace(policy, slots=1, rank_limit=rank, max_rows=1, max_context_tokens=context_tokens)
    plan = MergePlan(
        record=record,
        base_folder=settings.model_folder,
        folder=folder,
        dtype=settings.dtype,
        unmerged=TorchEngine(settings.model_folder, small),
    )
    return TorchEngine(folder, merged), plan


def _vllm_engine(settings: Settings) -> Engine:
    from services.replica_worker.engine.vllm.flags import environment
    from services.replica_worker.engine.vllm.policy import VllmPolicy

    policy = VllmPolicy(
        scratch_folder=settings.cache_folder / "prepared",
        slots=settings.slots,
        rank_limit=settings.rank_limit,
        max_rows=settings.max_rows,
        max_context_tokens=settings.max_context_tokens,
        dtype=settings.dtype,
        threads=settings.threads,
        kv_budget_bytes=settings.kv_budget_bytes,
    )
    os.environ.update(environment(policy))  # read when vLLM is imported, and by the child that steps
    from services.replica_worker.engine.vllm.engine import VllmEngine

    return VllmEngine(settings.model_folder, policy)


async def identify(settings: Settings) -> Identity:
    base_hash = await asyncio.to_thread(base_model_hash, settings.model_folder)
    return Identity(
        replica_id=settings.replica_id,
        incarnation=secrets.token_hex(8),
        pool_id=pool_id(base_hash, settings.rank_limit),
        base_model_hash=base_hash,
    )


async def to_merge(settings: Settings, bus: Bus, base_model_hash: str) -> AdapterRecord:
    """The record of the adapter that is to be merged in, once it is active. Raises SettingsError if it never is, or
    belongs to another base model."""
    found: asyncio.Future[AdapterRecord] = asyncio.get_running_loop().create_future()

    async def look(change: Change[AdapterRecord]) -> None:
        record = change.value
        named = record is not None and settings.merged in (record.adapter_id, record.digest)
        if record is not None and named and record.status == "active" and not found.done():
            found.set_result(record)

    watching = await bus.state(ADAPTER).watch(look)
    _log.info("waiting for the adapter that is to be merged in", adapter=settings.merged)
    try:
        async with asyncio.timeout(settings.merged_wait_s):
            record = await found
    except TimeoutError:
        reason = f"{PREFIX}MERGED: no adapter {settings.merged} was active within {settings.merged_wait_s:g} s"
        raise SettingsError(reason) from None
    finally:
        await watching.close()
    if record.base_model_hash != base_model_hash:
        reason = f"belongs to base model {record.base_model_hash[:12]}, this replica has {base_model_hash[:12]}"
        raise SettingsError(f"{PREFIX}MERGED: {record.adapter_id} {reason}")
    return record


def parts_of(replica: Replica, outside: Outside, probe: ProbeServer) -> list[Part]:
    """In the order of their start; whatever speaks outlives the replica, which drains before it stops."""
    clock = outside.clock
    return [
        probe,
        outside.residency,
        periodically(clock, REPORT_S, replica.reporter.send),
        periodically(clock, TICK_S, replica.tick),
        periodically(clock, BEAT_S, replica.generation.beat),
        replica,
        periodically(clock, SNAPSHOT_S, outside.residency.snapshot),
        periodically(clock, STIR_S, replica.convergence.stir_now_and_then),
        periodically(clock, STIR_S, replica.alarms.tell),
    ]


async def serve(settings: Settings, bus: Bus, identity: Identity, store: ObjectStore) -> None:
    clock, metrics, stop_asked = SystemClock(), Metrics("replica_worker"), asyncio.Event()
    tokenizer = Tokenizer.from_folder(settings.model_folder)
    plan: MergePlan | None = None
    if settings.merged:
        record = await to_merge(settings, bus, identity.base_model_hash)
        identity = msgspec.structs.replace(identity, pool_id=merged_pool_id(record.pool_id, record.digest))
        engine, plan = build_merged(settings, record)
    else:
        engine = build_engine(settings, identity.base_model_hash, tokenizer)
    book = FrameBook(identity.replica_id, identity.incarnation)
    told = ResidencyLog(identity.replica_id, identity.incarnation, identity.pool_id)
    outside = Outside(
        identity=identity,
        bus=bus,
        clock=clock,
        engine=engine,
        tokenizer=tokenizer,
        files=DiskFiles(settings.cache_folder, leftovers=() if plan else (_MERGED,)),
        store=store,
        frames=FrameSender(bus, book, clock),
        residency=ResidencyTeller(bus, told, clock),
        meters=Meters(metrics),
        ask_to_stop=stop_asked.set,
        on_loaded=garbage.settle,
        merge=plan,
        tracer=tracer_to(settings.tracing, "replica_worker"),
    )
    replica = Replica(settings, outside)
    probe = ProbeServer(settings.probe_port, metrics, replica.unready_reason)
    await run_until_stopped(
        "replica_worker",
        parts_of(replica, outside, probe),
        stop_deadline_s=settings.drain_deadline_s + 10.0,
        stop_asked=stop_asked,
    )
    if replica.failure:
        raise EngineFailed(replica.failure)


async def main() -> None:
    settings = read(Settings, PREFIX, os.environ)
    logs.configure("replica_worker", settings.replica_id)
    try:
        identity = await identify(settings)
    except OSError as error:
        raise SettingsError(f"{PREFIX}MODEL_FOLDER holds no base model: {error}") from error
    try:
        store = store_from_url(settings.store_url, settings)
    except ValueError as error:
        raise SettingsError(f"{PREFIX}STORE_URL does not fit: {error}") from error
    options = BusOptions(
        url=settings.nats_url,
        user=settings.nats_user,
        password=settings.nats_password,
        client_name=settings.replica_id,
    )
    bus = await connect(options)
    try:
        await serve(settings, bus, identity, store)
    finally:
        await bus.close()


if __name__ == "__main__":
    run_main(main())
