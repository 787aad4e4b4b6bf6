"""What replicas are asked about a version, in turn, until one has answered."""

from __future__ import annotations

from collections.abc import Sequence

from services.registry.core.gating.evaluation_sets import batches
from services.registry.core.records import StoredAdapter
from services.registry.fleet import UNANSWERED, Fleet
from services.registry.gating.attempts import Sheet
from shared.messages.completions import CasePrompt
from shared.messages.operations import Evaluation
from shared.runtime.logs import get_logger

_log = get_logger(__name__)


class Questions:
    """Everything here returns what was asked for, or a sentence on what stood in the way last."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def measure(self, adapter: StoredAdapter) -> Evaluation | str:
        """The first built-in evaluation that a replica gives."""
        replicas = await self._ready(adapter)
        if isinstance(replicas, str):
            return replicas
        trouble = _nobody(adapter)
        for replica_id in replicas:
            try:
                return await self._fleet.evaluate(replica_id, adapter)
            except UNANSWERED as error:
                trouble = _said(replica_id, error)
        return trouble

    async def answers(
        self, of: StoredAdapter, prompts: Sequence[CasePrompt], sheet: Sheet, *, base: bool = False
    ) -> str | None:
        """Fill the sheet: with the answers of this version, or of its base model. None once it is full."""
        if len(sheet.outputs) == len(prompts):
            return None
        replicas = await self._ready(of)
        if isinstance(replicas, str):
            return replicas
        trouble = _nobody(of)
        for replica_id in replicas:
            try:
                await self._ask(replica_id, None if base else of, of, (prompts, sheet))
            except UNANSWERED as error:
                trouble = _said(replica_id, error)
                continue
            if len(sheet.outputs) == len(prompts):
                return None
            trouble = f"replica {replica_id} did not answer every question"
        return trouble

    async def _ask(
        self,
        replica_id: str,
        record: StoredAdapter | None,
        of: StoredAdapter,
        work: tuple[Sequence[CasePrompt], Sheet],
    ) -> None:
        prompts, sheet = work
        for batch in batches([prompt for prompt in prompts if prompt.case not in sheet.outputs]):
            found = await self._fleet.complete(replica_id, of.announced.base_model_hash, record, batch)
            for output in found.outputs:
                sheet.take(output, replica_id)

    async def _ready(self, adapter: StoredAdapter) -> tuple[str, ...] | str:
        try:
            return await self._fleet.ready_replicas(adapter)
        except UNANSWERED as error:
            return f"placement was asked for replicas: {error}"


def _nobody(adapter: StoredAdapter) -> str:
    return f"no replica of pool {adapter.pool_id} is ready"


def _said(replica_id: str, error: Exception) -> str:
    _log.warning("a replica did not answer", replica_id=replica_id, error=error)
    return f"replica {replica_id} was asked: {error}"
