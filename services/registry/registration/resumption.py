"""Verifications that whoever began them could not end: a store that was away, a registry that was killed."""

from __future__ import annotations

from services.registry.core import lifecycle
from services.registry.core.turns import Entrant
from services.registry.io import adapter_rows
from services.registry.io.database import Database
from services.registry.io.source_unavailable import SourceUnavailable
from services.registry.registration.hindrances import Hindrances
from services.registry.registration.sights import Sight
from services.registry.registration.verifications import Verifications
from shared.runtime.logs import get_logger
from shared.store.port import StoreUnavailable

_log = get_logger(__name__)


class Resumption:
    """Work: takes what is still registered to verified or rejected."""

    name = "verification"
    gives_way = False

    def __init__(self, database: Database, verifications: Verifications, hindrances: Hindrances) -> None:
        self._database = database
        self._verifications = verifications
        self._hindrances = hindrances
        self.news = database.changes.follow_left()

    async def unfinished(self) -> list[Entrant]:
        async with self._database.read() as connection:
            return await adapter_rows.entrants(connection, (lifecycle.REGISTERED,))

    async def advance(self, adapter_id: str) -> bool:
        async with self._database.read() as connection:
            adapter = await adapter_rows.find(connection, adapter_id)
            if adapter is None or adapter.status != lifecycle.REGISTERED:
                return True
            around = await Sight(connection).around(adapter.announced)
        if not await self._is_registered(adapter_id):  # whoever announced it has come to an end meanwhile
            return True
        try:
            await self._verifications.verify(adapter.announced, around)
        except (StoreUnavailable, SourceUnavailable) as error:
            self._hindrances.note(adapter_id, str(error))
            _log.warning("an adapter waits to be verified", error=error)
            return False
        return True

    async def _is_registered(self, adapter_id: str) -> bool:
        async with self._database.read() as connection:
            adapter = await adapter_rows.find(connection, adapter_id)
        return adapter is not None and adapter.status == lifecycle.REGISTERED
