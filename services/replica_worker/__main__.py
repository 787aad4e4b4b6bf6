"""`python -m services.replica_worker`: wiring, and nothing else."""

from __future__ import annotations

import asyncio
import os
import secrets

from services.replica_worker.app import Replica
from services.replica_worker.assembly import Outside
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
from shared.bus.port import Bus
from shared.messages.pools import pool_id
from shared.runtime import logs
from shared.runtime.clock import SystemClock
from shared.runtime.metrics import Metrics
from shared.runtime.probe import ProbeServer
from shared.runtime.service import Part, periodically, run_main, run_until_stopped
from shared.runtime.settings import SettingsError, read
from shared.store.open import store_from_url
from shared.store.port import ObjectStore

TICK_S = 0.1
BEAT_S = 0.5
REPORT_S = 1.0
STIR_S = 2.0
SNAPSHOT_S = 10.0


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
    from services.replica_worker.engine.torch.engine import TorchEngine
    from services.replica_worker.engine.torch.policy import TorchPolicy

    policy = TorchPolicy(
        slots=settings.slots,
        rank_limit=settings.rank_limit,
        max_rows=settings.max_rows,
        max_context_tokens=settings.max_context_tokens,
        dtype=settings.dtype,
        threads=settings.threads,
    )
    return TorchEngine(settings.model_folder, policy)


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


def parts_of(replica: Replica, outside: Outside, probe: ProbeServer) -> list[Part]:
    """In the order of their start; whatever speaks outlives the replica, which drains before it stops."""
    clock = outside.clock
    return [
        probe,
        outside.frames,
        outside.residency,
        periodically(clock, REPORT_S, replica.reporter.send),
        periodically(clock, TICK_S, replica.tick),
        periodically(clock, BEAT_S, replica.generation.beat),
        replica,
        periodically(clock, SNAPSHOT_S, outside.residency.snapshot),
        periodically(clock, STIR_S, replica.convergence.stir_now_and_then),
    ]


async def serve(settings: Settings, bus: Bus, identity: Identity, store: ObjectStore) -> None:
    clock, metrics, stop_asked = SystemClock(), Metrics("replica_worker"), asyncio.Event()
    tokenizer = Tokenizer.from_folder(settings.model_folder)
    book = FrameBook(identity.replica_id, identity.incarnation)
    told = ResidencyLog(identity.replica_id, identity.incarnation, identity.pool_id)
    outside = Outside(
        identity=identity,
        bus=bus,
        clock=clock,
        engine=build_engine(settings, identity.base_model_hash, tokenizer),
        tokenizer=tokenizer,
        files=DiskFiles(settings.cache_folder),
        store=store,
        frames=FrameSender(bus, book, clock),
        residency=ResidencyTeller(bus, told, clock),
        meters=Meters(metrics),
        ask_to_stop=stop_asked.set,
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
