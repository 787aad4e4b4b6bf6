"""Source files as values, and what they import."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOTS = ("services", "shared", "infra", "loadtest", "tests")


@dataclass(frozen=True)
class Module:
    """One source file; `path` is relative to the repository, with slashes."""

    path: str
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source, filename=self.path)

    @cached_property
    def name(self) -> str:
        """Its import name: `shared/bus/__init__.py` is `shared.bus`."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def package(self) -> str:
        return self.name if self.path.endswith("/__init__.py") else self.name.rpartition(".")[0]

    def at(self, line: int, sentence: str) -> str:
        return f"{self.path}:{line}: {sentence}"


def read_modules(root: Path, folders: Sequence[str] = ROOTS) -> list[Module]:
    found = sorted(path for folder in folders for path in (root / folder).rglob("*.py"))
    return [Module(path.relative_to(root).as_posix(), path.read_text()) for path in found]


def check(modules: Iterable[Module], *rules: Callable[[Module], Iterable[str]]) -> list[str]:
    """Every sentence that any of the rules has about any of the modules."""
    return [sentence for module in modules for rule in rules for sentence in rule(module)]


def imports(module: Module) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything imported anywhere in a module: `from a import b` is `a.b`."""
    yield from ((line, name) for line, name, _ in _imported(module))


def bindings(module: Module) -> dict[str, str]:
    """What the imported names of a module stand for: after `from a import b as c`, `c` is `a.b`."""
    return {local: name for _, name, local in _imported(module)}


def _imported(module: Module) -> Iterator[tuple[int, str, str]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, alias.asname or alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = _absolute(module, node)
            for alias in node.names:
                yield node.lineno, f"{source}.{alias.name}", alias.asname or alias.name


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    anchor = module.package.split(".")
    kept = anchor[: len(anchor) - node.level + 1]
    return ".".join([*kept, *([node.module] if node.module else [])])


def within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")
