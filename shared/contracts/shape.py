"""What a message looks like, as a value: for the golden copy in the tests, and for the generated documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import inspect as types

_SCALARS: Mapping[type[types.Type], str] = {
    types.StrType: "str", types.IntType: "int", types.FloatType: "float", types.BoolType: "bool",
    types.BytesType: "bytes", types.NoneType: "null", types.AnyType: "any",
}  # fmt: skip


class FieldShape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`default` is what a reader assumes if the field is not required and not there."""

    name: str
    type: str
    required: bool
    default: Any = None


class MessageShape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`tag` is what names the message in a union. A message that is an `array` is encoded by position, not
    by name. A `closed` one refuses fields that it does not know."""

    fields: tuple[FieldShape, ...]
    tag: str | None = None
    array: bool = False
    closed: bool = False


def structs(kinds: Iterable[Any]) -> dict[str, types.StructType]:
    """Every struct in these types, nested ones included, in order of name. Raises ValueError if two different
    ones have the same name."""
    found: dict[str, types.StructType] = {}
    waiting = [types.type_info(kind) for kind in kinds]
    while waiting:
        info = waiting.pop()
        if isinstance(info, types.StructType):
            name = info.cls.__name__
            if name in found:
                if found[name].cls is not info.cls:
                    raise ValueError(f"two messages are called {name}")
                continue
            found[name] = info
        waiting.extend(_parts(info))
    return dict(sorted(found.items()))


def shape(struct: types.StructType) -> MessageShape:
    return MessageShape(
        fields=tuple(_field(field) for field in struct.fields),
        tag=str(struct.tag) if struct.tag is not None else None,
        array=struct.array_like,
        closed=struct.forbid_unknown_fields,
    )


def spell(info: types.Type) -> str:
    """A type in words: `list of str`, `map of str to int`, `Queued or Accepted`, `str or null`."""
    match info:
        case types.StructType():
            return info.cls.__name__
        case types.UnionType():
            return " or ".join(spell(option) for option in info.types)
        case types.DictType():
            return f"map of {spell(info.key_type)} to {spell(info.value_type)}"
        case types.VarTupleType() | types.ListType():
            return f"list of {spell(info.item_type)}"
        case _:
            return _SCALARS[type(info)]


def _field(field: types.Field) -> FieldShape:
    default = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
    return FieldShape(
        name=field.encode_name,
        type=spell(field.type),
        required=field.required,
        default=None if field.required else _json(default),
    )


def _json(value: Any) -> Any:
    """As it looks on the wire: a tuple is a list there."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _parts(info: types.Type) -> tuple[types.Type, ...]:
    match info:
        case types.StructType():
            return tuple(field.type for field in info.fields)
        case types.UnionType():
            return info.types
        case types.DictType():
            return (info.key_type, info.value_type)
        case types.VarTupleType() | types.ListType():
            return (info.item_type,)
        case _:
            return ()
