"""Which processes make an embedded fleet, with which settings: a pure function of the operator's choices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from infra.local.layout import Layout
from infra.local.settings import LocalSettings
from shared.store.access import S3Access


@dataclass(frozen=True, kw_only=True)
class ProcessSpec:
    """One child process. `ready_url` answers 200 once it serves. `vital`: without it there is no fleet."""

    name: str
    module: str
    env: Mapping[str, str]
    ready_url: str
    vital: bool = True


@dataclass(frozen=True, kw_only=True)
class BusLogin:
    url: str
    user: str
    password: str

    def env(self, prefix: str) -> dict[str, str]:
        names = {"NATS_URL": self.url, "NATS_USER": self.user, "NATS_PASSWORD": self.password}
        return {prefix + name: value for name, value in names.items()}


@dataclass(frozen=True, kw_only=True)
class FleetInputs:
    layout: Layout
    settings: LocalSettings
    model_folder: Path
    admin_key: str
    logins: Mapping[str, BusLogin]
    """By service name as in shared.contracts.channel.Service."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Variables that the operator set for single services."""
    redis_url: str = ""
    """Where gateways hold limits together."""
    more_folders: tuple[Path, ...] = ()
    """The model folder of each further pool."""


def processes(inputs: FleetInputs) -> tuple[ProcessSpec, ...]:
    """Every service among the supervisor's children, in the order in which they start."""
    return (*_workers(inputs), _registry(inputs), _placement(inputs), _autoscaler(inputs), _gateway(inputs))


def merged_processes(inputs: FleetInputs) -> tuple[ProcessSpec, ...]:
    """A replica for each adapter that is to be merged in. They wait for it, so nobody waits for them; and an adapter
    that cannot be merged takes nobody else's replica down."""
    first = len(_workers(inputs))
    return tuple(
        replace(_worker(inputs, f"merged-{at}", first + at, MERGED=name), vital=False)
        for at, name in enumerate(inputs.settings.merged)
    )


def replica(inputs: FleetInputs, at_pool: int, at: int, merged: str = "") -> ProcessSpec:
    """One more replica of the pool at this place in the settings, the fleet's `at`-th. As it was not there when the
    fleet began, the fleet can do without it."""
    own = {"MERGED": merged} if merged else {}
    return replace(_worker(inputs, f"replica-{at}", at, **_pool(inputs, at_pool), **own), vital=False)


def _workers(inputs: FleetInputs) -> tuple[ProcessSpec, ...]:
    """Numbered through all pools."""
    pools = [_pool(inputs, at) for at, pool in enumerate(inputs.settings.pools) for _ in range(pool.replicas)]
    return tuple(_worker(inputs, f"replica-{at}", at, **pool) for at, pool in enumerate(pools))


def _pool(inputs: FleetInputs, at_pool: int) -> dict[str, str]:
    folder = (inputs.model_folder, *inputs.more_folders)[at_pool]
    return {"MODEL_FOLDER": str(folder), "RANK_LIMIT": str(inputs.settings.pools[at_pool].rank_limit)}


def _gateway(inputs: FleetInputs) -> ProcessSpec:
    settings = inputs.settings
    env = {"GATEWAY_ID": "gateway-0", "HOST": settings.host, "PORT": str(settings.port)}
    if inputs.redis_url:
        env["REDIS_URL"] = inputs.redis_url
    return _spec(inputs, "gateway", "GATEWAY", env, settings.port)


def _registry(inputs: FleetInputs) -> ProcessSpec:
    settings, layout = inputs.settings, inputs.layout
    env = {
        "HOST": settings.host,
        "PORT": str(settings.admin_port),
        "DATABASE_URL": f"sqlite+aiosqlite:///{layout.database}",
        **_store(inputs),
        "ADMIN_KEY": inputs.admin_key,
        "WEIGHTS_PREFIXES": ",".join((layout.inbox.as_uri(), *settings.weights_prefixes)),
    }
    return _spec(inputs, "registry", "REGISTRY", env, settings.admin_port)


def _placement(inputs: FleetInputs) -> ProcessSpec:
    port = inputs.settings.probe_port
    return _spec(inputs, "placement", "PLACEMENT", {"PROBE_PORT": str(port)}, port)


def _autoscaler(inputs: FleetInputs) -> ProcessSpec:
    port, scale = inputs.settings.probe_port + 1, inputs.settings.scale
    env = {"PROBE_PORT": str(port)}
    if scale is not None:
        env |= {"ACTUATOR": "process", "SUPERVISOR": str(inputs.layout.door.absolute())}
        env |= {"MIN_REPLICAS": str(scale[0]), "MAX_REPLICAS": str(scale[-1])}
    return _spec(inputs, "autoscaler", "AUTOSCALER", env, port)


def _worker(inputs: FleetInputs, replica_id: str, at: int, **more: str) -> ProcessSpec:
    settings = inputs.settings
    port = settings.probe_port + 2 + at if 2 + at < settings.probes else 0
    env = {
        "REPLICA_ID": replica_id,
        "MODEL_FOLDER": str(inputs.model_folder),
        **_store(inputs),
        "CACHE_FOLDER": str(inputs.layout.cache(replica_id)),
        "ENGINE": settings.engine,
        "SLOTS": str(settings.slots),
        "RANK_LIMIT": str(settings.rank_limit),
        "MAX_ROWS": str(settings.max_rows),
        "MAX_CONTEXT_TOKENS": str(settings.max_context_tokens),
        "RAM_BUDGET_BYTES": str(settings.ram_budget_bytes),
        "DISK_BUDGET_BYTES": str(settings.disk_budget_bytes),
        "THREADS": str(settings.threads),
        "DTYPE": settings.dtype,
        "PROBE_PORT": str(port),
        **more,
    }
    return replace(_spec(inputs, "replica_worker", "WORKER", env, port), name=replica_id)


def _store(inputs: FleetInputs) -> dict[str, str]:
    """Where the store is, and how it is reached: the same words for everyone who reads or writes it."""
    settings = inputs.settings
    access = {field.name.upper(): getattr(settings, field.name) for field in msgspec.structs.fields(S3Access)}
    given = {name: value for name, value in access.items() if value is not None}
    return {"STORE_URL": settings.store_url or inputs.layout.store.as_uri(), **given}


def _spec(inputs: FleetInputs, service: str, word: str, env: Mapping[str, str], port: int) -> ProcessSpec:
    prefix = f"LORAFLEET_{word}_"
    own = {prefix + name: value for name, value in env.items()}
    overrides = {name: value for name, value in inputs.overrides.items() if name.startswith(prefix)}
    return ProcessSpec(
        name=service,
        module=f"services.{service}",
        env={**own, **inputs.logins[service].env(prefix), **overrides},
        ready_url=f"http://{inputs.settings.host}:{port}/readyz",
    )
