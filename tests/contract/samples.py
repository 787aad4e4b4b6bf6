"""Messages made from their own types, so that a new field is covered the day it is added."""

from __future__ import annotations

from typing import Any

from msgspec import inspect as types

from shared.contracts.channel import Channel

_SCALARS: dict[type[types.Type], Any] = {
    types.StrType: "łódź-1", types.IntType: 7, types.FloatType: 0.25, types.BoolType: True, types.NoneType: None,
    types.BytesType: b"\xc5\x82",
}  # fmt: skip


def full(kind: Any) -> list[Any]:
    """One message for each struct that `kind` may be, every field set."""
    return [_value(option) for option in options(kind)]


def sparse(kind: Any) -> list[Any]:
    """The same with nothing but the required fields."""
    return [_struct(option, required_only=True) for option in options(kind)]


def options(kind: Any) -> list[types.StructType]:
    info = types.type_info(kind)
    found = info.types if isinstance(info, types.UnionType) else (info,)
    return [option for option in found if isinstance(option, types.StructType)]


def messages(channel: Channel[Any, Any]) -> list[Any]:
    return [*full(channel.message), *sparse(channel.message)]


def replies(channel: Channel[Any, Any]) -> list[Any]:
    return [*full(channel.reply), *sparse(channel.reply)] if channel.reply is not None else []


def _struct(info: types.StructType, *, required_only: bool = False) -> Any:
    chosen = [field for field in info.fields if field.required or not required_only]
    if info.array_like:
        return info.cls(*(_value(field.type) for field in chosen))
    return info.cls(**{field.name: _value(field.type) for field in chosen})


def _value(info: types.Type) -> Any:
    match info:
        case types.StructType():
            return _struct(info)
        case types.UnionType():
            return _value(next(option for option in info.types if not isinstance(option, types.NoneType)))
        case types.DictType():
            return {_value(info.key_type): _value(info.value_type)}
        case types.VarTupleType():
            return (_value(info.item_type),) * 2
        case _:
            return _SCALARS[type(info)]
