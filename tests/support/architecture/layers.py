"""Who may import whom."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.support.architecture.source import ROOTS, Module, imports, within


@dataclass(frozen=True)
class Layer:
    """What the modules below one name may import. `own` are first-party names (`{service}` is the service
    that the module belongs to), `others` third-party top-level names or None for any."""

    name: str
    own: tuple[str, ...]
    others: frozenset[str] | None = None

    def holds(self, module: Module) -> bool:
        return re.fullmatch(self.name + r"(\..*)?", module.name) is not None


def wrong_imports(layers: Sequence[Layer]) -> Callable[[Module], list[str]]:
    """The first layer that holds a module decides what it may import."""

    def rule(module: Module) -> list[str]:
        layer = next((layer for layer in layers if layer.holds(module)), None)
        if layer is None:
            return [module.at(1, "belongs to no layer, so nothing says what it may import")]
        return [
            module.at(line, f"{layer.name} may not import {name}")
            for line, name in imports(module)
            if not _allowed(layer, module, name)
        ]

    return rule


def _allowed(layer: Layer, module: Module, name: str) -> bool:
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names:
        return True
    if top not in ROOTS:
        return layer.others is None or top in layer.others
    service = ".".join(module.name.split(".")[:2])
    return any(within(name, own.format(service=service)) for own in layer.own)


def imports_only_in(library: str, homes: Sequence[str]) -> Callable[[Module], list[str]]:
    """`homes` are patterns of module names that alone may import a third-party library."""

    def rule(module: Module) -> list[str]:
        if any(re.fullmatch(home, module.name) for home in homes):
            return []
        return [
            module.at(line, f"only {' and '.join(homes)} may import {library}")
            for line, name in imports(module)
            if within(name, library)
        ]

    return rule


def many_clients(families: Mapping[str, str], neutral: frozenset[str]) -> Callable[[Module], list[str]]:
    """A module below an `io` folder speaks to one client library; `families` says which belong together."""

    def rule(module: Module) -> list[str]:
        if ".io." not in module.name:
            return []
        tops = {name.partition(".")[0] for _, name in imports(module)}
        third = {top for top in tops if top not in sys.stdlib_module_names and top not in ROOTS and top not in neutral}
        clients = sorted({families.get(top, top) for top in third})
        return [module.at(1, f"one client library a file, not {', '.join(clients)}")] if len(clients) > 1 else []

    return rule
