"""JSON Schema in a few words. Null is the same as nothing wherever a field may be left out."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NULL: Schema = {"type": "null"}
ANYTHING: Schema = {}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def integer(lowest: int | None = None, highest: int | None = None) -> Schema:
    return _bounded("integer", lowest, highest)


def number(lowest: float | None = None, highest: float | None = None) -> Schema:
    return _bounded("number", lowest, highest)


def one_of(*values: Any) -> Schema:
    return {"enum": list(values)}


def array(items: Schema, **bounds: int) -> Schema:
    return {"type": "array", "items": items, **bounds}


def any_of(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def nullable(schema: Schema) -> Schema:
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    if schema == NULL:
        return schema
    if isinstance(schema.get("type"), str):
        return {**schema, "type": [schema["type"], "null"]}
    return any_of(*schema.get("anyOf", [schema]), NULL)


def record(needed: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """An object. What is `optional` may be null as well; what nobody knows is let through."""
    others = {name: nullable(schema) if schema else schema for name, schema in (optional or {}).items()}
    return {"type": "object", "properties": {**needed, **others}, "required": list(needed)}


def where(**fields: Schema) -> Schema:
    """That these fields, if they are there, are like this."""
    return {"properties": fields}


def with_field(name: str, schema: Schema) -> Schema:
    """That the field is there, and like this."""
    return {"properties": {name: schema}, "required": [name]}


def _bounded(kind: str, lowest: float | None, highest: float | None) -> Schema:
    bounds = {"minimum": lowest, "maximum": highest}
    return {"type": kind, **{name: bound for name, bound in bounds.items() if bound is not None}}
