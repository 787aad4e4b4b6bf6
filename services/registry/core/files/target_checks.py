"""Whether the modules of a weights file are those that the announcement's targets and patterns mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from services.registry.core.defects import defect, quoted
from services.registry.core.files.terms import Terms, entry_of, places_of
from shared.lora_names import Place, ends_of
from shared.lora_terms import Pattern, Targets
from shared.messages.adapters import AdapterRegistered, Defect
from shared.messages.desired import BaseModelRecord

_FIELD = "target_modules"


def check_targets(
    places: set[Place],
    announced: AdapterRegistered,
    terms: Terms,
    base: BaseModelRecord | None,
    excluded: Targets | None,
) -> Iterator[Defect]:
    """`excluded` is what PEFT was told to leave out of what an expression matches."""
    if terms.targets is None:
        return
    said = announced.target_modules
    for place in sorted(place for place in places if not terms.targets.mean(place.path)):
        message = f"Module {place.path} is in the file but is none of the target modules."
        yield defect("module_not_targeted", message, _FIELD, found=place.path, allowed=_shown(said))
    if isinstance(said, str):
        yield from _check_expression(places, said, terms.targets, base, excluded)
    else:
        yield from _check_names(places, said)


def check_patterns(places: set[Place], announced: AdapterRegistered, terms: Terms) -> Iterator[Defect]:
    """Every entry means at least one module of the file."""
    yield from _check_pattern("rank_pattern", announced.rank_pattern, terms.ranks, places)
    yield from _check_pattern("alpha_pattern", announced.alpha_pattern, terms.alphas, places)


def _check_names(places: set[Place], names: Iterable[str]) -> Iterator[Defect]:
    """PEFT may have been told of some layers only, so a name need not have tensors in all of them."""
    meant = {end for place in places for end in ends_of(place.path)}
    for name in names:
        if name not in meant:
            message = f"Target module {quoted(name)} has no tensors in the file."
            yield defect("target_without_tensors", message, _FIELD, found=name, allowed="modules of the file")


def _check_expression(
    places: set[Place], said: str, targets: Targets, base: BaseModelRecord | None, excluded: Targets | None
) -> Iterator[Defect]:
    """PEFT adapts every module that an expression matches, so each of them must have its tensors."""
    matched = [place for place in (() if base is None else places_of(base)) if targets.mean(place.path)]
    if base is not None and not matched:
        message = f"The expression {quoted(said)} matches no module of {base.name}."
        yield defect("target_without_tensors", message, _FIELD, found=said, allowed="an expression over whole names")
    for place in matched:
        if place not in places and not (excluded is not None and excluded.mean(place.path)):
            message = f"Target module {place.path} has no tensors in the file."
            yield defect("target_without_tensors", message, _FIELD, found=place.path, allowed="modules of the file")


def _check_pattern(
    field: str, keys: Iterable[str], pattern: Pattern[int] | Pattern[float] | None, places: set[Place]
) -> Iterator[Defect]:
    if pattern is None:
        return
    used = {key for place in places for key in pattern.keys_of(place.path)}
    for key in keys:
        if key not in used:
            message = f"Pattern {quoted(key)} means no module of the file."
            yield defect("pattern_unused", message, entry_of(field, key), found=key, allowed="modules of the file")


def _shown(said: tuple[str, ...] | str) -> str:
    return said if isinstance(said, str) else ", ".join(said) or "no module"
