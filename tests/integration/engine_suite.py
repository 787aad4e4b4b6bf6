"""What every engine must do; each implementation's test class inherits it and provides `subject`."""

from __future__ import annotations

from tests.integration.engine_exact_suite import ExactCases
from tests.integration.engine_prefix_suite import PrefixCases
from tests.integration.engine_slot_suite import SlotCases
from tests.integration.engine_stream_suite import StreamCases


class EngineSuite(StreamCases, SlotCases, PrefixCases):
    """`subject` is a started `tests.support.engine_subject.Subject` with that module's slots, rows and context."""


class ExactEngineSuite(EngineSuite, ExactCases):
    """For an engine that promises every token, whatever its batch and its cache hold."""
