"""Settings: one frozen struct per service, read once from the environment, refused if anything is wrong."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

S = TypeVar("S", bound=msgspec.Struct)


class SettingsError(Exception):
    """The environment does not describe a service that can run; the sentence names the variable."""


def read(kind: type[S], prefix: str, environ: Mapping[str, str]) -> S:
    """The settings of a service from the variables that start with `prefix`.

    A field `port` is the variable `<prefix>PORT`. Tuples are separated by commas, booleans are `true` or
    `false`, and an empty value of an optional field is None. Raises SettingsError for a variable that is
    no field, a field without value or default, and a value that does not fit its type.
    """
    fields = {prefix + field.name.upper(): field for field in msgspec.structs.fields(kind)}
    for name in sorted(environ):
        if name.startswith(prefix) and name not in fields:
            raise SettingsError(_unknown(name, prefix, fields))
    for name, field in fields.items():
        if field.required and name not in environ:
            raise SettingsError(f"{name} is not set, and {_service(prefix)} has no default for it")
    given = {field.name: _value(name, field.type, environ[name]) for name, field in fields.items() if name in environ}
    try:
        return kind(**given)
    except ValueError as error:
        raise SettingsError(f"the settings of {_service(prefix)} do not fit together: {error}") from error


def _service(prefix: str) -> str:
    """`LORAFLEET_GATEWAY_` is the gateway's."""
    return prefix.rstrip("_").rpartition("_")[2].lower()


def _unknown(name: str, prefix: str, known: Iterable[str]) -> str:
    endings = sorted(other.removeprefix(prefix) for other in known)
    meant = difflib.get_close_matches(name.removeprefix(prefix), endings, n=1)
    hint = f"did you mean {prefix}{meant[0]}?" if meant else f"after {prefix} it has {', '.join(endings)}"
    return f"{name} is no setting of {_service(prefix)}; {hint}"


def _value(name: str, kind: Any, text: str) -> Any:
    try:
        value = msgspec.convert(_shaped(kind, text), kind, strict=False, dec_hook=_custom)
    except (msgspec.ValidationError, ValueError) as error:
        reason = _allowed(kind) or str(error).replace("`", "").replace(", got str", "")
        raise SettingsError(f"{name} is {text!r}, which does not fit: {reason}") from error
    if isinstance(value, float) and not math.isfinite(value):
        raise SettingsError(f"{name} is {text!r}, which does not fit: it must be a finite number")
    return value


def _allowed(kind: Any) -> str:
    """For a choice between words: which ones."""
    return f"it is one of {', '.join(map(str, get_args(kind)))}" if get_origin(kind) is Literal else ""


def _shaped(kind: Any, text: str) -> Any:
    """The text in the outer form of its type: a list for a tuple, None for an empty optional."""
    if get_origin(kind) is Annotated:
        return _shaped(get_args(kind)[0], text)
    if get_origin(kind) in (Union, UnionType):
        inner = [option for option in get_args(kind) if option is not type(None)]
        return None if text == "" else _shaped(inner[0], text)
    if get_origin(kind) is tuple:
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if text.strip() and not parts:
            raise ValueError("between its commas it names nothing")
        return parts
    return text.lower() if kind is bool else text


def _custom(kind: type[Any], value: Any) -> Any:
    if kind is Path and value:
        return Path(value)
    raise ValueError(f"expected a {kind.__name__.lower()}")
