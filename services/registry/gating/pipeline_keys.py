"""Keys with which pipelines sign the results of their own evaluations."""

from __future__ import annotations

import hashlib

from services.registry.core.defects import quoted
from services.registry.core.deployment.aliases import Denied
from services.registry.io import customer_rows, pipeline_key_rows, signatures
from services.registry.io.database import Database
from services.registry.io.pipeline_key_rows import PipelineKey
from shared.runtime.clock import Clock

_LONGEST_NAME = 128


class PipelineKeys:
    """Everything here may raise DatabaseUnavailable; nothing was changed then."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def add(self, name: str, public_key: str, tenant_id: str) -> PipelineKey | Denied:
        """Believed from now on; its id follows from the key."""
        if not 1 <= len(name.strip()) <= _LONGEST_NAME:
            message = f"A key needs a name of 1 to {_LONGEST_NAME} characters."
            return Denied(kind="invalid", code="name_invalid", message=message, field="name")
        if not signatures.is_public_key(public_key):
            message = "public_key must be the 32 bytes of an Ed25519 public key as 64 hexadecimal digits."
            return Denied(kind="invalid", code="public_key_invalid", message=message, field="public_key")
        raw = bytes.fromhex(public_key)
        key = PipelineKey(
            key_id=hashlib.sha256(raw).hexdigest()[:16],
            name=name.strip(),
            public_key=raw.hex(),
            tenant_id=tenant_id,
            created_at_s=self._clock.wall_s(),
        )
        async with self._database.write(announce=False) as connection:
            if tenant_id and not await customer_rows.tenant_exists(connection, tenant_id):
                message = f"There is no tenant {quoted(tenant_id)}."
                return Denied(kind="missing", code="tenant_unknown", message=message, field="tenant_id")
            if await pipeline_key_rows.find(connection, key.key_id) is not None:
                message = f"This key is known already, as {key.key_id}."
                return Denied(kind="conflict", code="key_known", message=message, field="public_key")
            await pipeline_key_rows.add(connection, key)
        return key

    async def listed(self) -> list[PipelineKey]:
        async with self._database.read() as connection:
            return await pipeline_key_rows.listed(connection)

    async def revoke(self, key_id: str) -> PipelineKey | Denied:
        """Believed no more; what it signed before stands."""
        async with self._database.write(announce=False) as connection:
            key = await pipeline_key_rows.find(connection, key_id)
            if key is None:
                message = f"There is no pipeline key {quoted(key_id)}."
                return Denied(kind="missing", code="key_unknown", message=message)
            await pipeline_key_rows.remove(connection, key_id)
        return key
