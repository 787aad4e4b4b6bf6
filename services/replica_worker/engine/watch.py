"""The engine, its figures, and the moment in which it breaks."""

from __future__ import annotations

from collections.abc import Callable

from services.replica_worker.engine.figures import EngineLoad
from services.replica_worker.engine.port import Engine, EngineFailed, EngineInfo, OnStep

_NOTHING = EngineLoad(running=0, waiting=0, tokens_in_flight=0, kv_bytes_used=0, steps=0, tokens_per_s=0.0)


class EngineWatch:
    """A broken engine is not repaired in place: the process ends, and its supervisor starts a new one."""

    def __init__(self, engine: Engine, on_failure: Callable[[str], None]) -> None:
        self.engine = engine
        self.load = _NOTHING
        self._on_failure = on_failure
        self._info: EngineInfo | None = None

    @property
    def started(self) -> bool:
        return self._info is not None

    @property
    def info(self) -> EngineInfo:
        """Raises EngineFailed before the engine has started."""
        if self._info is None:
            raise EngineFailed("the engine has not started")
        return self._info

    async def begin(self, on_step: OnStep, base_model_hash: str) -> None:
        """Raises EngineFailed, also for an engine that runs another model than this replica speaks for."""
        info = await self.engine.start(on_step)
        if info.base_model_hash != base_model_hash:
            raise EngineFailed(f"the engine runs base model {info.base_model_hash[:12]}, not {base_model_hash[:12]}")
        self._info = info

    def end(self) -> None:
        """The engine is closed on purpose: that it no longer answers is no failure."""
        self._info = None
        self.load = _NOTHING

    @property
    def running_now(self) -> int:
        """Rows taken at this moment; 0 for an engine that is broken, which the next look notices."""
        try:
            return self.engine.load_figures().running
        except EngineFailed:
            return 0

    async def look(self) -> None:
        try:
            self.load = self.engine.load_figures()
        except EngineFailed as error:
            self.load = _NOTHING
            self._on_failure(f"the engine failed: {error}")
