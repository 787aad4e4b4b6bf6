"""An announcement's targets and patterns, read once: what is wrong with them as texts, and how they match."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import msgspec

from services.registry.core.defects import defect, quoted
from shared.expressions import ExpressionNotServed, NoExpression
from shared.lora_names import BLOCK_OF, Place, half_of, is_plain_name
from shared.lora_terms import Applied, Pattern, PeftTerms, Targets, key_faults, resolved
from shared.messages.adapters import AdapterRegistered, Defect
from shared.messages.desired import BaseModelRecord

_PLAIN = "a dotted module name"
_EXPRESSION = "a regular expression as Python's re takes it"
_SERVED = "a regular expression that a linear matcher takes: no look-around, no back reference"

T = TypeVar("T")


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """None is what cannot be read; `defects` says why, and of what was read which texts are wrong."""

    targets: Targets | None
    ranks: Pattern[int] | None
    alphas: Pattern[float] | None
    defects: tuple[Defect, ...]


def read_terms(announced: AdapterRegistered) -> Terms:
    return Terms(
        targets=_readable(lambda: Targets(announced.target_modules)),
        ranks=_readable(lambda: Pattern(announced.rank_pattern)),
        alphas=_readable(lambda: Pattern(announced.alpha_pattern)),
        defects=(
            *_check_targets(announced.target_modules),
            *_check_keys("rank_pattern", announced.rank_pattern),
            *_check_keys("alpha_pattern", announced.alpha_pattern),
        ),
    )


def applied_terms(announced: AdapterRegistered, tensor_names: Iterable[str]) -> Applied:
    """For those who are to apply an adapter without a defect, which has these tensors."""
    halves = (half_of(name) for name in tensor_names)
    said = PeftTerms(
        rank=announced.rank,
        alpha=announced.alpha,
        rank_pattern=announced.rank_pattern,
        alpha_pattern=announced.alpha_pattern,
    )
    return resolved(said, {half.place.path for half in halves if half is not None})


def as_announced(announced: AdapterRegistered) -> Applied:
    """Of an adapter that was taken when only plain names were."""
    targets = announced.target_modules
    return Applied(
        target_modules=(targets,) if isinstance(targets, str) else targets,
        rank_pattern=announced.rank_pattern,
        alpha_pattern=announced.alpha_pattern,
    )


def places_of(base: BaseModelRecord) -> list[Place]:
    """Every linear layer of this base that PEFT finds in it and that adapters may adapt."""
    modules = [(BLOCK_OF[module], module) for module in sorted(base.modules) if module in BLOCK_OF]
    return [Place(layer, block, module) for layer in range(base.layers) for block, module in modules]


def entry_of(field: str, key: str) -> str:
    """The field of one entry of a pattern."""
    return f"{field}[{quoted(key)}]"


def expression_fault(fault: NoExpression | ExpressionNotServed, field: str, text: str) -> Defect:
    if isinstance(fault, NoExpression):
        message = f"{quoted(text)} is neither a module name nor a regular expression: {fault}."
        return defect("expression_invalid", message, field, found=text, allowed=_EXPRESSION)
    message = f"The regular expression {quoted(text)} is not served: {fault}."
    return defect("expression_not_served", message, field, found=text, allowed=_SERVED)


def _readable(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except (NoExpression, ExpressionNotServed):
        return None


def _check_targets(said: tuple[str, ...] | str) -> Iterator[Defect]:
    field = "target_modules"
    if isinstance(said, str):
        try:
            Targets(said)
        except (NoExpression, ExpressionNotServed) as fault:
            yield expression_fault(fault, field, said)
        return
    for name in said:
        if not is_plain_name(name):
            message = (
                f"Target {quoted(name)} is not a module name; an expression is announced as one text, not in a list."
            )
            yield defect("target_invalid", message, field, found=name, allowed=_PLAIN)


def _check_keys(field: str, keys: Iterable[str]) -> Iterator[Defect]:
    for key, fault in key_faults(keys).items():
        yield expression_fault(fault, entry_of(field, key), key)
