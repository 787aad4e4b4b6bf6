"""JSON schemas that customers write, checked within a bounded number of steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.exceptions import SchemaError
from jsonschema.validators import extend
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from services.registry.io.patterns import PatternInvalid, found_in

Schema = Mapping[str, Any] | bool

LARGEST_SCHEMA_BYTES = 16 << 10
_MOST_STEPS = 20_000
_STEPS_PER_MATCH = 5
_NOT_SERVED = ("unevaluatedProperties", "unevaluatedItems", "$dynamicRef")
"""Keywords for which the library walks through a schema by ways of its own, uncounted and with Python's `re`."""


class _TooManySteps(Exception):
    """References that double at every level reach any number of steps; so do many patterns over many names."""


def schema_fault(schema: Schema) -> str | None:
    """Why a schema cannot be used, as a clause."""
    size_bytes = len(json.dumps(schema))
    if size_bytes > LARGEST_SCHEMA_BYTES:
        return f"the schema has {size_bytes} bytes, {LARGEST_SCHEMA_BYTES} are allowed"
    try:
        Draft202012Validator.check_schema(schema)
        for part in _parts(schema):
            if named := [name for name in _NOT_SERVED if name in part]:
                return f"{named[0]} is not served"
            for pattern in _patterns(part):
                found_in(pattern, "")
        if (lost := _lost_reference(schema)) is not None:
            return f"its $ref {lost[:200]!r} leads to no schema in it, and other documents are not read"
    except SchemaError as error:
        return f"it is no JSON schema: {error.message[:200]}"
    except PatternInvalid as error:
        return f"a pattern in it cannot be used: {error}"
    except ValueError as error:
        return f"an $id in it is no address: {error}"
    except RecursionError:
        return "it is nested too deeply"
    return None


def conforms(schema: Schema, text: str) -> bool:
    """Whether the text is JSON that the schema allows. What cannot be decided, or not within the bounds, is not."""
    try:
        said = json.loads(text)
        validator = _validator(_MOST_STEPS)(schema, registry=Registry())
        return bool(validator.is_valid(said))
    except Exception:
        # A reference makes a schema of what was never checked as one, and numbers of any size are compared: the
        # library raises whatever its arithmetic and its types come to.
        return False


def _validator(steps: int) -> Any:
    """The standard one, except that its patterns are RE2's and that it counts. Other documents are never fetched."""
    left = steps

    def counted(name: str, rule: Callable[..., Any]) -> Callable[..., Any]:
        def apply(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
            nonlocal left
            left -= 1 + _matches(name, value, instance, schema) * _STEPS_PER_MATCH
            if left < 0:
                raise _TooManySteps
            return rule(validator, value, instance, schema)

        return apply

    rules = {**Draft202012Validator.VALIDATORS, **_OWN}
    return extend(Draft202012Validator, {name: counted(name, rule) for name, rule in rules.items()})


def _matches(name: str, value: Any, instance: Any, schema: Any) -> int:
    """How many times a rule compares a text with a pattern."""
    if name not in ("patternProperties", "additionalProperties") or not isinstance(instance, dict):
        return int(name == "pattern")
    return len(instance) * len(schema.get("patternProperties", {}))


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not found_in(pattern, instance):
        yield ValidationError("does not match")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    for pattern, subschema in patterns.items():
        for name, value in instance.items():
            if found_in(pattern, name):
                yield from validator.descend(value, subschema)


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    patterns = schema.get("patternProperties", {})
    for name, value in instance.items():
        if name not in schema.get("properties", {}) and not any(found_in(pattern, name) for pattern in patterns):
            yield from validator.descend(value, allowed)


def _unique_items(validator: Any, wanted: bool, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """In one walk: the library compares every pair of what cannot be sorted."""
    if wanted and isinstance(instance, list) and len({_hashed(item) for item in instance}) < len(instance):
        yield ValidationError("has items twice")


def _hashed(value: Any) -> Any:
    """Equal for equal JSON alone: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, dict):
        return dict, frozenset((name, _hashed(item)) for name, item in value.items())
    if isinstance(value, list):
        return list, tuple(map(_hashed, value))
    return isinstance(value, bool), value


_OWN: Mapping[str, Callable[..., Any]] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
}


def _lost_reference(schema: Schema) -> str | None:
    """The first reference at which every answer would fail, whatever it says."""
    root: Resource[Any] = DRAFT202012.create_resource(schema)
    uri = root.id() or ""
    known: Registry[Any] = Registry().with_resource(uri, root).crawl()
    for reference, resolver in _references(root, known.resolver(uri)):
        try:
            found = resolver.lookup(reference).contents
        except (Unresolvable, ValueError, TypeError):  # the latter two where it goes on behind a text or a number
            return reference
        if not isinstance(found, dict | bool):
            return reference
    return None


def _references(part: Resource[Any], around: Any) -> Iterator[tuple[str, Any]]:
    """Each with what resolves it: an `$id` on the way changes what it is relative to."""
    resolver = around.in_subresource(part)
    if isinstance(part.contents, dict) and isinstance(reference := part.contents.get("$ref"), str):
        yield reference, resolver
    for inner in part.subresources():
        yield from _references(inner, resolver)


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """Every object in it: a reference can make a schema of any."""
    if isinstance(schema, dict):
        yield schema
    for one in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _parts(one)


def _patterns(part: dict[str, Any]) -> Iterator[str]:
    if isinstance(pattern := part.get("pattern"), str):
        yield pattern
    if isinstance(patterns := part.get("patternProperties"), dict):
        yield from patterns
