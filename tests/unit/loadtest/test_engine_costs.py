"""What the documents say of costs is what the committed report says."""

from __future__ import annotations

import msgspec
import pytest

from loadtest.engine_costs import costs, pages, replaced
from loadtest.report import Figure, Report, read_report

PAGES = pages(read_report("engine"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_the_last_report(page: object) -> None:
    [path] = [each for each in PAGES if each == page]
    text = path.read_text()
    assert replaced(text, PAGES[path]) == text


def test_another_measurement_is_another_page() -> None:
    """Planted: a figure that somebody changed by hand, in the report or on the page."""
    report = read_report("engine")
    figures = {**report.figures, "tokens_per_s.b32.d8": Figure(value=123456.0, unit="token/s")}
    assert "| 123456 (" in costs(msgspec.structs.replace(report, figures=figures))
    assert costs(report) != costs(msgspec.structs.replace(report, figures=figures))


def test_the_tables_name_the_machine_the_day_and_what_makes_the_cost_larger() -> None:
    report = read_report("engine")
    text = costs(report)
    for said in (report.machine, report.date[:10], "bfloat16", "rank 16", "rank 64", "float32", "thread", "contexts"):
        assert said in text


def test_what_was_not_measured_is_a_dash_and_says_how_to_get_it() -> None:
    conditions = {"model": "M", "threads": "1", "vllm": "left out: `make vllm`", "transformers": "t", "peft": "p"}
    report = Report(name="engine", commit="c", date="2026-01-01", machine="m", figures={}, conditions=conditions)
    text = costs(report)
    assert "left out: `make vllm` | – | – |" in text
    assert "| 32 | – | – | – | – | – |" in text


def test_a_page_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="no part between"):
        replaced("# Costs\n", "")
