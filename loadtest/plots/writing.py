"""A page becomes its two files."""

from __future__ import annotations

from pathlib import Path

from loadtest.plots.drawing import write_png
from loadtest.plots.html import html
from loadtest.plots.page import Page


def write_page(page: Page, folder: Path) -> tuple[Path, Path]:
    """Writes `<name>.png` and `<name>.html`, returns their paths. Raises OSError; a file not replaced yet is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    picture, document, fresh = (folder / f"{page.name}{end}" for end in (".png", ".html", ".html.new"))
    write_png(picture, page.title, [exhibit.panel for exhibit in page.exhibits])
    fresh.write_text(html(page), encoding="utf-8")
    return picture, fresh.replace(document)
