"""What of a JSON schema would cost too much, although the library's own limits let it pass. Pure.

Wherever it stands: a reference can make a schema of any part of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

MOST_TEXT_BYTES = 2048
"""Of one name, constant, pattern or description. Each token of an answer costs a walk through all of a text that it may
be part of: a millisecond or two for so much."""
_MOST_PATTERNS = 64
"""Of names: every two of them are compared."""
_MOST_DIGITS = 4
"""Of what an integer is a multiple of, without zeros at the end: there is a state for each remainder. A number may have
to be a multiple of all of them at once."""


def excess(schema: Any) -> str | None:
    """Of a decoded schema, in one sentence; None: nothing."""
    patterns, multiple = 0, 1
    for value in _parts(schema):
        if isinstance(value, str) and len(value.encode(errors="replace")) > MOST_TEXT_BYTES:
            return f"no text in a JSON schema may have more than {MOST_TEXT_BYTES} bytes"
        if isinstance(value, dict):
            figures = _figures(value.get("multipleOf"))
            if figures >= 10**_MOST_DIGITS:
                return f"a multipleOf in a JSON schema may have at most {_MOST_DIGITS} digits before zeros at its end"
            multiple = math.lcm(multiple, figures)
            if multiple >= 10**_MOST_DIGITS:
                return f"what all multipleOf in a JSON schema divide may have at most {_MOST_DIGITS} digits"
            named = value.get("patternProperties")
            patterns += len(named) if isinstance(named, dict) else 0
    if patterns > _MOST_PATTERNS:
        return f"a JSON schema may have at most {_MOST_PATTERNS} patternProperties"
    return None


def _parts(schema: Any) -> Iterator[Any]:
    """Every value and every name, however deep."""
    left = [schema]
    while left:
        value = left.pop()
        yield value
        if isinstance(value, dict):
            left += value.keys()
            left += value.values()
        elif isinstance(value, list):
            left += value


def _figures(number: Any) -> int:
    """Its digits before zeros at its end, as a number; 1: there is none to be a multiple of."""
    if isinstance(number, bool) or not isinstance(number, int | float) or not number:
        return 1
    return int("".join(map(str, Decimal(str(number)).normalize().as_tuple().digits)))
