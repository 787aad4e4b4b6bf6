"""How long things may be."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from tests.support.architecture.source import Module

MODULE_LINES = 350
LONG_MODULE_LINES = 200
FUNCTION_LINES = 50
PARAMETERS = 5


def long_modules(module: Module) -> list[str]:
    lines = module.source.count("\n")
    return [module.at(1, f"{lines} lines, at most {MODULE_LINES}")] if lines > MODULE_LINES else []


def long_functions(module: Module) -> list[str]:
    return [
        module.at(node.lineno, f"{node.name} has {length(node)} lines, at most {FUNCTION_LINES}")
        for node in functions(module)
        if length(node) > FUNCTION_LINES
    ]


def many_parameters(module: Module) -> list[str]:
    """Structs and dataclasses have as many fields as they need; a function takes five values, then a struct."""
    return [
        module.at(node.lineno, f"{node.name} takes {len(taken)} parameters, at most {PARAMETERS}")
        for node in functions(module)
        if len(taken := parameters(node)) > PARAMETERS
    ]


def functions(module: Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(module.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    named = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return [name for at, name in enumerate(named) if not (at == 0 and name in ("self", "cls"))]


def share_of_long_modules(modules: Sequence[Module]) -> float:
    """How many of the modules have more lines than a page that is read in one go."""
    return sum(module.source.count("\n") > LONG_MODULE_LINES for module in modules) / len(modules)


def mean_function_lines(modules: Sequence[Module]) -> float:
    lengths = [length(node) for module in modules for node in functions(module)]
    return sum(lengths) / len(lengths)
