"""The base model's golden prompt, put to the engine before any request."""

from __future__ import annotations

import asyncio
from pathlib import Path

from services.replica_worker.core import effect, golden
from services.replica_worker.core.effect import Distribution
from services.replica_worker.engine.port import BASE_SLOT, EngineFailed
from services.replica_worker.engine.watch import EngineWatch
from services.replica_worker.io.golden import GoldenUnreadable, read_golden
from shared.runtime.logs import get_logger

RIGHT, UNCHECKED = "right", "unchecked"
_log = get_logger(__name__)


async def check_base(watch: EngineWatch, folder: Path) -> str:
    """RIGHT, or UNCHECKED for a model without a recorded answer and an engine without a model.

    Raises EngineFailed with one sentence if the answer is another, or the file says nothing about this model.
    """
    info = watch.info
    if not info.has_model:
        return UNCHECKED
    try:
        known = await asyncio.to_thread(read_golden, folder)
    except GoldenUnreadable as error:
        raise EngineFailed(str(error)) from error
    if known is None:
        _log.warning("the base model is not checked: no answer was recorded for it", folder=str(folder))
        return UNCHECKED
    if why := golden.wrong_model(known, info.base_model_hash):
        raise EngineFailed(why)
    try:
        probe = await watch.engine.probe(known.prompt_token_ids, BASE_SLOT, effect.TOP)
    except ValueError as error:
        raise EngineFailed(f"the golden prompt does not fit this engine: {error}") from error
    found = Distribution(finite=probe.finite, token_ids=probe.token_ids, logprobs=probe.logprobs)
    if why := golden.wrong_answer(known, found, info.dtype):
        raise EngineFailed(why)
    _log.info("the base model gives its golden answer", computed_by=known.computed_by, dtype=info.dtype)
    return RIGHT
