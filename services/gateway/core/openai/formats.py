"""`response_format`: the schema that an answer must follow, as text."""

from __future__ import annotations

from typing import Any

import msgspec

from services.gateway.core.fields import Defect, flag, mapping, present, shown, text

LARGEST_SCHEMA_BYTES = 64 << 10
ANY_OBJECT = '{"type":"object"}'


def read_format(value: Any) -> str:
    """ "" for any text. A schema is followed, `strict` or not. Raises Defect."""
    if value is None:
        return ""
    at = "response_format"
    kind = present(mapping(value, at).get("type"), f"{at}.type")
    if kind == "text":
        return ""
    if kind == "json_object":
        return ANY_OBJECT
    if kind != "json_schema":
        message = f"`{at}.type` must be text, json_object or json_schema, not {shown(kind)}."
        raise Defect(message, f"{at}.type", "invalid_value")
    return _schema(mapping(value.get("json_schema"), f"{at}.json_schema"), f"{at}.json_schema")


def _schema(given: dict[str, Any], at: str) -> str:
    text(given, "name", at)
    flag(given, "strict", f"{at}.strict")
    return schema_text(mapping(given.get("schema"), f"{at}.schema"), f"{at}.schema")


def schema_text(schema: Any, at: str) -> str:
    """Raises Defect for one that is too large."""
    encoded = msgspec.json.encode(schema)
    if len(encoded) > LARGEST_SCHEMA_BYTES:
        message = f"`{at}` may have at most {LARGEST_SCHEMA_BYTES} bytes, not {len(encoded)}."
        raise Defect(message, at, "invalid_value")
    return encoded.decode()
