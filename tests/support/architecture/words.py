"""Which words may stand in names, strings and comments."""

from __future__ import annotations

import ast
import io
import re
import tokenize

from tests.support.architecture.source import Module, within

_VAGUE = frozenset(
    {"util", "utils", "helper", "helpers", "manager", "managers", "handler", "handlers", "data", "process", "processes"}
)
_VAGUE_CLASS = re.compile(r"(Utils?|Helpers?|Managers?|Handlers?)(?![a-z])")


def vague_names(module: Module) -> list[str]:
    """A name says what a thing is for; these words fit everything, so they say nothing."""
    words = {word for part in module.path.removesuffix(".py").split("/") for word in part.split("_")}
    found = [module.at(1, f"{word!r} says nothing about the module") for word in sorted(words & _VAGUE)]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef) and _VAGUE_CLASS.search(node.name):
            found.append(module.at(node.lineno, f"the name {node.name} says nothing about the class"))
    return found


def subject_literals(module: Module) -> list[str]:
    """Subjects and buckets come from the catalog. Docstrings may quote them for people."""
    if within(module.name, "shared.contracts") or within(module.name, "tests.contract"):
        return []
    prose = {id(node.value) for node in ast.walk(module.tree) if isinstance(node, ast.Expr)}
    return [
        module.at(node.lineno, f"the subject {node.value!r} must come from shared.contracts.catalog")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
        if re.search(r"\blf[._]v1[._]", node.value + ".")
    ]


def leftover_comments(module: Module) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(module.source).readline)
    return [
        module.at(token.start[0], "an issue holds what is left to do, not a comment")
        for token in tokens
        if token.type == tokenize.COMMENT and re.search(r"\b(TODO|FIXME|XXX|HACK)\b", token.string)
    ]
