"""Decide, then apply: what a core may not do, and what only `__main__` does."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from tests.support.architecture.source import Module, bindings, imports

IMPURE = frozenset({
    "asyncio", "concurrent", "io", "logging", "multiprocessing", "os", "pathlib", "queue", "random", "secrets",
    "selectors", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading",
    "time", "urllib", "uuid",
})  # fmt: skip
_IMPURE_CALLS = frozenset({"open", "print", "input"})
_WALL_CLOCK = frozenset({"now", "utcnow", "today"})


def impurities(module: Module) -> list[str]:
    """A core decides: it waits for nothing, and reads no clock, file or random number."""
    return [
        *(
            module.at(line, f"a core may not import {name}")
            for line, name in imports(module)
            if name.partition(".")[0] in IMPURE
        ),
        *(module.at(line, f"a core may not {what}") for line, what in _impure_nodes(module.tree)),
    ]


def _impure_nodes(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith | ast.Await):
            yield node.lineno, "wait (async or await)"
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id in _IMPURE_CALLS:
                yield node.lineno, f"call {called.id}()"
            if isinstance(called, ast.Attribute) and called.attr in _WALL_CLOCK:
                yield node.lineno, f"read the wall clock with .{called.attr}()"


def shell_classes(modules: Iterable[Module]) -> frozenset[str]:
    """Full names of the classes of services that touch the world, so that `__main__` wires them: those below
    `io` that wait for something, and parts that are started. Everything else is a value or a private detail."""
    return frozenset(
        f"{module.name}.{node.name}"
        for module in modules
        if module.name.startswith("services.")
        for node in module.tree.body
        if isinstance(node, ast.ClassDef) and not _is_protocol(node)
        if "start" in _waiting(node) or (".io." in module.name and _waiting(node))
    )


def _waiting(node: ast.ClassDef) -> set[str]:
    return {member.name for member in node.body if isinstance(member, ast.AsyncFunctionDef)}


def _is_protocol(node: ast.ClassDef) -> bool:
    return any("Protocol" in ast.unparse(base) for base in node.bases)


def is_entry_point(module: Module) -> bool:
    """Whether it is run by its name: `__main__`, or a tool that ends with `if __name__ == "__main__"`."""
    tests = [ast.unparse(node.test) for node in module.tree.body if isinstance(node, ast.If)]
    return module.name.endswith(".__main__") or "__name__ == '__main__'" in tests


def constructions(wired: frozenset[str]) -> Callable[[Module], list[str]]:
    """Calls of wired things outside an entry point. A module may construct what it defines itself."""

    def rule(module: Module) -> list[str]:
        if not module.name.startswith("services.") or is_entry_point(module):
            return []
        known = {local: name for local, name in bindings(module).items() if name in wired}
        return [
            module.at(node.lineno, f"only __main__ constructs {known[node.func.id]}")
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known
        ]

    return rule


def environment_reads(module: Module) -> list[str]:
    """Settings are read once, in `__main__`: nothing else of a service or of shared looks at the environment."""
    if not module.name.startswith(("services.", "shared.")) or is_entry_point(module):
        return []
    return [
        module.at(node.lineno, "only __main__ reads the environment")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv")
    ]
