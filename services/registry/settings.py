"""Everything about the registry that can be set: variables `LORAFLEET_REGISTRY_*`."""

from __future__ import annotations

from pathlib import Path

from services.registry.core.files.sources import Prefixes, prefixes_of
from shared.store.access import S3Access

PREFIX = "LORAFLEET_REGISTRY_"
_POSITIVE = (
    "usage_keep_s", "largest_file_bytes", "evaluation_deadline_s", "evaluations_at_once", "evaluation_retry_s",
    "evaluation_longest_retry_s", "evaluation_gives_way_s",
    "ask_timeout_s", "load_timeout_s", "evaluate_timeout_s", "outbox_retry_s",
    "outbox_batch_rows", "database_connections", "database_timeout_s", "outbox_look_s", "reconcile_s",
    "migration_sweep_s", "retrain_deadline_s",
    "residency_deadline_s", "rollback_residency_s", "deployment_deadline_s", "keep_warm_s", "wanted_sweep_s",
    "guard_check_s", "guard_probe_s", "verification_deadline_s", "results_deadline_s",
    "deadline_sweep_s",
)  # fmt: skip


class Settings(S3Access, frozen=True, kw_only=True):
    nats_url: str = "nats://127.0.0.1:4222"
    nats_user: str = "registry"
    nats_password: str = ""
    instance: str = "registry"
    """The name in its log lines."""
    host: str = "127.0.0.1"
    """`/internal` is for operators and pipelines: never the public address."""
    port: int = 8001
    admin_key: str
    database_url: str
    database_connections: int = 20
    """How many it keeps open, where the database is PostgreSQL."""
    database_timeout_s: float = 30.0
    store_url: str
    weights_prefixes: tuple[str, ...] = ()
    """`file:///folder` or `s3://bucket/prefix`: where `weights_uri` may point, besides uploads. None by default.
    Buckets are reached as the store is, with the `s3_*` settings."""
    largest_file_bytes: int = 2 << 30
    drafts_folder: Path | None = None
    """Where uploads grow until they are whole; unset: within a store in a folder, which then takes them in without
    copying them, else in the system's folder for temporary files."""
    keep_parts_s: float = 86400.0
    """How long an upload that broke off may be taken up again."""
    keep_uploads_s: float = 7 * 86400.0
    """How long a whole upload waits for the announcement that names it."""
    evaluation_deadline_s: float = 600.0
    """How long a verified adapter may wait for a replica that measures it, from when its turn comes; and how long for
    its turn, while none comes to anybody."""
    verification_deadline_s: float = 600.0
    """How long an announcement may wait for its file to be read and checked."""
    results_deadline_s: float = 3600.0
    """How long a pipeline may take for the results that it announced to post itself."""
    deadline_sweep_s: float = 1.0
    evaluations_at_once: int = 4
    evaluation_retry_s: float = 0.5
    evaluation_longest_retry_s: float = 4.0
    evaluation_gives_way_s: float = 480.0
    """For how long a batch of registrations leaves room for one evaluation at a time, in a tenth of one replica's time:
    once a verified adapter has waited for so long, all of them go on beside the batch. At most four fifths of
    `evaluation_deadline_s`."""
    ask_timeout_s: float = 2.0
    load_timeout_s: float = 30.0
    evaluate_timeout_s: float = 60.0
    outbox_retry_s: float = 0.5
    outbox_batch_rows: int = 200
    outbox_look_s: float = 5.0
    """How often it looks for what another registry on its database left untold."""
    reconcile_s: float = 300.0
    """How often every bucket is compared with the database."""
    keep_published_s: float = 86400.0
    migration_sweep_s: float = 1.0
    """How soon items of a migration follow what becomes of adapters and aliases."""
    retrain_deadline_s: float = 7 * 86400.0
    """After which a retraining that was asked for is shown as overdue."""
    usage_keep_s: float = 90 * 86400.0
    """How long single requests are on record; what a tenant used in a day is kept for good."""
    residency_deadline_s: float = 20.0
    """How long a version may take to get into a slot on its owners before its alias moves."""
    rollback_residency_s: float = 2.0
    """The same for a rollback, which moves then in any case."""
    deployment_deadline_s: float = 600.0
    """How long the deployment of an announced alias is tried."""
    keep_warm_s: float = 600.0
    """How long an active adapter keeps its place in the tiers without ever having had an alias."""
    wanted_sweep_s: float = 5.0
    guard_check_s: float = 1.0
    guard_probe_s: float = 10.0

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        if len(self.admin_key) < 16:
            raise ValueError("admin_key must have at least 16 characters")
        try:
            prefixes_of(self.weights_prefixes)
        except ValueError as error:
            raise ValueError(f"weights_prefixes: {error}") from error
        if not self.database_url.partition("://")[0].endswith(("+aiosqlite", "+asyncpg")):
            raise ValueError("database_url must look like sqlite+aiosqlite:///file or postgresql+asyncpg://…")

    @property
    def weights_from(self) -> Prefixes:
        return prefixes_of(self.weights_prefixes)
