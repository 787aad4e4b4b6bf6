"""Which modules an adapter means by its targets and patterns, all of them as PEFT reads them.

`resolved` turns them into plain names for those who are to apply them: behind the registry nobody sees an expression.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from shared.expressions import LARGEST_PROGRAM, Expression, ExpressionNotServed, NoExpression
from shared.lora_names import ends_of, is_plain_name, last_part

ALL_LINEAR = "all-linear"

V = TypeVar("V", int, float)


class Targets:
    """A list names modules; a text is an expression over whole names, or "all-linear" for every linear layer."""

    def __init__(self, said: tuple[str, ...] | str) -> None:
        """Raises NoExpression, ExpressionNotServed."""
        self.every = isinstance(said, str) and said.lower() == ALL_LINEAR
        self.by_expression = isinstance(said, str)
        self._names = frozenset(() if isinstance(said, str) else said)
        self._expression = Expression(said) if isinstance(said, str) and not self.every else None

    def mean(self, path: str) -> bool:
        if self._expression is not None:
            return self._expression.matches(path)
        return self.every or any(end in self._names for end in ends_of(path))


class Pattern(Generic[V]):
    """Values for the modules whose names end in what a key matches; of several keys the first counts."""

    def __init__(self, said: Mapping[str, V]) -> None:
        """Raises NoExpression, ExpressionNotServed."""
        self._said: Mapping[str, V] = said
        self._order = {key: at for at, key in enumerate(said)}
        self._expressions, faults = _compiled(said)
        for fault in faults.values():
            raise fault

    def keys_of(self, path: str) -> list[str]:
        """The keys that match a module, in their order: the first one decides."""
        keys = [end for end in ends_of(path) if end in self._order]
        keys += [key for key, expression in self._expressions if expression.matches(path)]
        return sorted(keys, key=self._order.__getitem__)

    def value(self, path: str, default: V) -> V:
        keys = self.keys_of(path)
        return self._said[keys[0]] if keys else default


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """Targets and patterns in plain names: modules, and whole dotted names where layers differ."""

    target_modules: tuple[str, ...]
    rank_pattern: Mapping[str, int] = {}
    alpha_pattern: Mapping[str, float] = {}


class PeftTerms(msgspec.Struct, frozen=True, kw_only=True):
    """As they stand in an announcement or in adapter_config.json."""

    rank: int
    alpha: float
    rank_pattern: Mapping[str, int]
    alpha_pattern: Mapping[str, float]


def resolved(said: PeftTerms, paths: Iterable[str]) -> Applied:
    """For an adapter that has tensors for the modules at exactly these paths, which are its targets.

    Raises NoExpression, ExpressionNotServed.
    """
    places = sorted(paths)
    return Applied(
        target_modules=tuple(sorted({last_part(path) for path in places})),
        rank_pattern=_plain(Pattern(said.rank_pattern), said.rank, places),
        alpha_pattern=_plain(Pattern(said.alpha_pattern), said.alpha, places),
    )


def _plain(pattern: Pattern[V], default: V, paths: list[str]) -> dict[str, V]:
    """One entry for a module that has one value in all of its layers, else one for every layer that differs from
    the default. No module has both, so that the order of the entries means nothing."""
    values = {path: pattern.value(path, default) for path in paths}
    of_module: dict[str, set[V]] = {}
    for path, value in values.items():
        of_module.setdefault(last_part(path), set()).add(value)
    names = (
        (last_part(path) if len(of_module[last_part(path)]) == 1 else path, value) for path, value in values.items()
    )
    return {name: value for name, value in names if value != default}


def key_faults(keys: Iterable[str]) -> Mapping[str, NoExpression | ExpressionNotServed]:
    """What is wrong with the keys of a pattern, by key."""
    return _compiled(keys)[1]


def _compiled(
    keys: Iterable[str],
) -> tuple[list[tuple[str, Expression]], dict[str, NoExpression | ExpressionNotServed]]:
    """The keys that are no plain names, as PEFT completes them. What matching them costs has a bound together."""
    expressions: list[tuple[str, Expression]] = []
    faults: dict[str, NoExpression | ExpressionNotServed] = {}
    size = 0
    for key in keys:
        if is_plain_name(key) or size > LARGEST_PROGRAM:
            continue
        try:
            expression = Expression(rf"(.*\.)?({key})")
        except (NoExpression, ExpressionNotServed) as fault:
            faults[key] = fault
            continue
        expressions.append((key, expression))
        size += expression.program_size
        if size > LARGEST_PROGRAM:
            faults[key] = ExpressionNotServed("the expressions are together too much to match")
    return expressions, faults
