"""The codes that pipelines decide by: those of the source and those that are told of are the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from services.registry.core.defects import CODES

ROOT = Path(__file__).parents[3]
_ROW = re.compile(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \| [^|]+ \|$", re.MULTILINE)


def _told() -> list[str]:
    page = (ROOT / "docs" / "pipelines.md").read_text()
    return _ROW.findall(page[page.index("## 4. What can be wrong") : page.index("## 5.")])


def _texts(path: Path) -> Iterator[str]:
    """Every text in a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _given() -> set[str]:
    """The first argument of every call of `defect`, where it is written out."""
    calls = (
        node
        for path in (ROOT / "services" / "registry").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "defect"
    )
    first = (call.args[0] for call in calls)
    return {code.value for code in first if isinstance(code, ast.Constant)}


def test_the_page_for_pipelines_tells_of_every_code_and_of_no_other() -> None:
    assert _told() == sorted(CODES)


def test_every_code_is_given_somewhere() -> None:
    elsewhere = [path for path in (ROOT / "services" / "registry").rglob("*.py") if path.name != "defects.py"]
    texts = {text for path in elsewhere for text in _texts(path)}
    assert set(CODES) <= texts | _given()


def test_no_code_is_given_that_is_not_among_them() -> None:
    assert len(_given()) > 30
    assert _given() <= set(CODES)
