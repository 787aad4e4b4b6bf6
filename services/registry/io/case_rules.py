"""The kinds of evaluation cases that need a library: regular expressions and JSON schemas."""

from __future__ import annotations

from typing import Any

from services.registry.io import json_schemas
from services.registry.io.patterns import PatternInvalid, compiled, found_in


def fault_of(kind: str, expected: Any) -> str | None:
    """Why what is expected cannot be compared with anything, as a clause; other kinds have no fault here."""
    if kind == "json_schema":
        return json_schemas.schema_fault(expected)
    if kind == "regex":
        try:
            compiled(expected)
        except PatternInvalid as error:
            return str(error)
    return None


def fits(kind: str, expected: Any, text: str) -> bool:
    """Of an expectation without fault."""
    return json_schemas.conforms(expected, text) if kind == "json_schema" else found_in(expected, text)
