"""Single fields of a JSON body, each either what it should be or a defect that names it."""

from __future__ import annotations

from typing import Any

import msgspec

from services.gateway.core import refusal


class Defect(Exception):
    """One thing that is wrong, as the refusal that says so."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.refusal = refusal.bad_request(message, param=param, code=code)


def required(fields: dict[str, Any], name: str) -> Any:
    """Raises Defect, as all of these do."""
    if name not in fields:
        raise Defect(f"`{name}` is required.", name, "missing_required_parameter")
    return fields[name]


def number(fields: dict[str, Any], name: str, lowest: float, highest: float) -> float:
    """1 if it is not there."""
    value = fields.get(name, 1.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not lowest <= value <= highest:
        message = f"`{name}` must be a number from {lowest:g} to {highest:g}, not {shown(value)}."
        raise Defect(message, name, "invalid_value")
    return float(value)


def flag(fields: dict[str, Any], name: str, at: str) -> bool:
    """False if it is not there. `at` is where it stands in the body."""
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise Defect(f"`{at}` must be true or false, not {shown(value)}.", at, "invalid_type")
    return bool(value)


def is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def shown(value: Any) -> str:
    """A value as the customer wrote it, short enough for one sentence."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 40 else f"{text[:37]}..."
