"""vLLM keeps every promise of the port."""

from __future__ import annotations

from tests.integration.engine_shaping_suite import ShapingCases
from tests.integration.engine_suite import EngineSuite


class TestVllmEngine(EngineSuite, ShapingCases):
    pass
