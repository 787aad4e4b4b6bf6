"""Single fields of a JSON body, each either what it should be or a defect that names it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from services.gateway.core import refusal
from services.gateway.core.refusal import Refusal
from shared.json_values import json_value

R = TypeVar("R")


class Defect(Exception):
    """One thing that is wrong, as the refusal that says so."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.refusal = refusal.bad_request(message, param=param, code=code)


def read_body(body: bytes, read: Callable[[dict[str, Any]], R]) -> R | Refusal:
    """What `read` makes of the fields of a JSON object, in which null is the same as nothing; or what its Defect says.
    What was just not too deep to be decoded may yet be so for `read`."""
    try:
        fields = json_value(body)
        if not isinstance(fields, dict):
            return refusal.bad_request("The request body must be a JSON object.", code="invalid_json")
        return read({name: value for name, value in fields.items() if value is not None})
    except RecursionError:
        return refusal.bad_request("The request body is nested too deeply.", code="invalid_json")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return refusal.bad_request(f"The request body is not valid JSON: {error}.", code="invalid_json")
    except Defect as defect:
        return defect.refusal


def required(fields: dict[str, Any], name: str) -> Any:
    """Raises Defect, as all of these do."""
    return present(fields.get(name), name)


def present(value: Any, at: str) -> Any:
    """What stands at `at`, where something has to: null is nothing."""
    if value is None:
        raise Defect(f"`{at}` is required.", at, "missing_required_parameter")
    return value


def number(fields: dict[str, Any], name: str, lowest: float, highest: float, default: float = 1.0) -> float:
    """`default` if it is not there."""
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not lowest <= value <= highest:
        message = f"`{name}` must be a number from {lowest:g} to {highest:g}, not {shown(value)}."
        raise Defect(message, name, "invalid_value")
    return float(value)


def integer(fields: dict[str, Any], name: str, lowest: int, highest: int) -> int | None:
    """None if it is not there."""
    value = fields.get(name)
    if value is not None and (not is_integer(value) or not lowest <= value <= highest):
        message = f"`{name}` must be an integer from {lowest} to {highest}, not {shown(value)}."
        raise Defect(message, name, "invalid_value")
    return value


def flag(fields: dict[str, Any], name: str, at: str) -> bool:
    """False if it is not there. `at` is where it stands in the body."""
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise Defect(f"`{at}` must be true or false, not {shown(value)}.", at, "invalid_type")
    return bool(value)


def refuse_all_but(harmless: Mapping[str, tuple[Any, ...]], fields: dict[str, Any]) -> None:
    """These parameters are not served, but for the values that ask for nothing special."""
    for name, values in harmless.items():
        if name in fields and fields[name] not in values:
            raise Defect(f"`{name}` is not supported.", name, "unsupported_parameter")


def mapping(value: Any, at: str) -> dict[str, Any]:
    """The object that stands at `at`."""
    present(value, at)
    if not isinstance(value, dict):
        raise Defect(f"`{at}` must be an object, not {shown(value)}.", at, "invalid_type")
    return value


def text(fields: dict[str, Any], name: str, at: str) -> str:
    """The string `name` of the object that stands at `at`."""
    value = present(fields.get(name), f"{at}.{name}")
    if not isinstance(value, str):
        raise Defect(f"`{at}.{name}` must be a string, not {shown(value)}.", f"{at}.{name}", "invalid_type")
    return value


def is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def shown(value: Any) -> str:
    """A value as the customer wrote it, short enough for one sentence."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 40 else f"{text[:37]}..."
