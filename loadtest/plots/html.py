"""A page in one file: no scripts, nothing fetched, readable by day and by night."""

from __future__ import annotations

from html import escape

from loadtest.plots.drawing import svg
from loadtest.plots.page import Exhibit, Page, Table

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2329; --paper: #fcfcfb; --faint: #66707a; --rule: #d9dde1 }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7ea; --paper: #16191c; --faint: #9aa4ad; --rule: #363c42 } }
body { margin: 2rem auto; max-width: 76rem; padding: 0 1.5rem; color: var(--ink); background: var(--paper);
  font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif }
h1 { font-size: 1.6rem; margin: 0 0 .3rem } h2 { font-size: 1.15rem; margin: 2.4rem 0 .2rem }
p { max-width: 46rem; margin: .2rem 0 .8rem }
section > div { display: flex; flex-wrap: wrap; gap: 1.5rem; align-items: flex-start }
figure { flex: 3 1 30rem; margin: 0 } svg { width: 100%; height: auto; display: block }
.table { flex: 2 1 20rem; overflow-x: auto }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid var(--rule); white-space: nowrap }
th { color: var(--faint); font-weight: 600 } th:first-child, td:first-child { text-align: left; padding-left: 0 }
footer { margin-top: 2.5rem; border-top: 1px solid var(--rule); padding-top: .6rem; color: var(--faint);
  font-size: .85rem }
footer span { margin-right: 1.2rem; white-space: nowrap }
"""


def html(page: Page) -> str:
    conditions = "".join(f"<span>{escape(name)}: {escape(value)}</span> " for name, value in page.conditions)
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escape(page.title)}</title>\n'
        f"<style>{_STYLE}</style>\n<h1>{escape(page.title)}</h1>\n<p>{escape(page.intro)}</p>\n"
        f"{''.join(map(_section, page.exhibits))}<footer>{conditions}</footer>\n</html>\n"
    )


def _section(exhibit: Exhibit) -> str:
    table = f'<div class="table">{_table(exhibit.table)}</div>' if exhibit.table is not None else ""
    return (
        f"<section>\n<h2>{escape(exhibit.panel.title)}</h2>\n<p>{escape(exhibit.remark)}</p>\n"
        f"<div><figure>{svg(exhibit.panel)}</figure>{table}</div>\n</section>\n"
    )


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>\n" for row in table.rows)
    return f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody></table>"
