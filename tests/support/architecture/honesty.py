"""What makes a test prove less than it seems to."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from tests.support.architecture.source import Module, bindings, imports


def sleeps(module: Module) -> list[str]:
    """A test awaits what it waits for, with a deadline. `asyncio.sleep(0)` only gives others a turn."""
    names = bindings(module)
    return [
        module.at(node.lineno, f"{ast.unparse(node)} is no synchronisation")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and _lets_time_pass(node, names)
    ]


def _lets_time_pass(node: ast.Call, names: Mapping[str, str]) -> bool:
    first, dot, rest = ast.unparse(node.func).partition(".")
    called = names.get(first, first) + dot + rest
    turn = bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
    return called == "time.sleep" or (called == "asyncio.sleep" and not turn)


_SKIPS = re.compile(r"(pytest|unittest)\.(mark\.)?(skip|skipif|skipIf|skipUnless|xfail|importorskip|SkipTest)")


def skips(module: Module) -> list[str]:
    """What is missing fails a test: a skipped one proves nothing and nobody notices."""
    named = [
        (node.lineno, ast.unparse(node))
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and _SKIPS.fullmatch(ast.unparse(node))
    ]
    imported = [(line, name) for line, name in imports(module) if _SKIPS.fullmatch(name)]
    return [module.at(line, f"{name} hides a test") for line, name in (*named, *imported)]
