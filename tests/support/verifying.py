"""What verification says about a file made by tests.support.adapter_files."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from services.registry.core.files.description import Surroundings
from services.registry.core.files.verify import FileFacts, Limits, verify
from services.registry.io.inspection import Inspection
from tests.support.adapter_files import BASE, announcement, file_of

AROUND = Surroundings(tenant_known=True, base=BASE, base_names=frozenset({BASE.name}))
LIMITS = Limits(largest_file_bytes=1 << 20)
GOOD = file_of()


def facts(file: bytes, config: bytes | None = None) -> FileFacts:
    """As the registry reads it."""
    reading = Inspection()
    reading.feed(file)
    return msgspec.structs.replace(reading.facts(), config=config)


def defects(
    file: bytes = GOOD, around: Surroundings = AROUND, config: bytes | None = None, **said: Any
) -> dict[str, str]:
    """The messages by their code."""
    found = verify(announcement(file, **said), around, facts(file, config), LIMITS)
    return {one.code: one.message for one in found}


def zeros(*shape: int, dtype: Any = np.float16) -> np.ndarray[Any, Any]:
    return np.zeros(shape, dtype)
