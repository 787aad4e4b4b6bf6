"""Versions that were announced with an alias are deployed once they are active."""

from __future__ import annotations

from services.registry.core.deployment.aliases import Denied
from services.registry.core.deployment.deploying import comes_again
from services.registry.core.turns import Entrant
from services.registry.deployment.aliasing import Aliasing
from services.registry.io import wanted_rows
from services.registry.io.database import Database
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger

_log = get_logger(__name__)


class Deployments:
    """Work: a deployment that no replica could do is tried again for `deadline_s`; then it is left to people. What is
    still to be deployed follows from the database, where the next start finds it."""

    name = "deployment"
    gives_way = False

    def __init__(self, database: Database, aliasing: Aliasing, clock: Clock, deadline_s: float) -> None:
        self._database = database
        self._aliasing = aliasing
        self._clock = clock
        self._deadline_s = deadline_s
        self._deadlines: dict[str, float] = {}
        self._decided: set[str] = set()
        self.news = database.changes.follow_activated()

    async def unfinished(self) -> list[Entrant]:
        async with self._database.read() as connection:
            left = await wanted_rows.to_deploy(connection)
        return [entrant for entrant in left if entrant.adapter_id not in self._decided]

    async def advance(self, adapter_id: str) -> bool:
        deadline_s = self._deadlines.setdefault(adapter_id, self._clock.now_s() + self._deadline_s)
        outcome = await self._aliasing.deploy_announced(adapter_id)
        if comes_again(outcome, deadline_s, self._clock.now_s()):
            return False
        del self._deadlines[adapter_id]
        if isinstance(outcome, Denied):
            self._decided.add(adapter_id)
            _log.warning("an announced alias was not set", code=outcome.code, reason=outcome.message)
        return True
