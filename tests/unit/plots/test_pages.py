"""Pages are the same bytes every time, stand alone, and show what they were given."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from loadtest.plots.drawing import svg
from loadtest.plots.html import html
from loadtest.plots.page import Exhibit, Mark, Page, Panel, Series, Table
from loadtest.plots.planning import PlanPoint, plan_page
from loadtest.plots.routing import RoutingRun, routing_page
from loadtest.plots.scaling import ScaledDay, scaling_page
from loadtest.plots.validation import Compared, Measured, validation_page
from loadtest.plots.writing import write_page

SVG = "{http://www.w3.org/2000/svg}"


def point(replicas: int, p95_s: float) -> PlanPoint:
    return PlanPoint(
        replicas=replicas,
        ttft_p50_s=0.15,
        ttft_p95_s=p95_s,
        ttft_p99_s=2 * p95_s,
        worst_customer_p95_s=1.5 * p95_s,
        gpu_hit=0.99,
        gpu_or_ram_hit=0.9995,
        loads_per_1000=9.5,
        max_over_mean=1.1,
        failed_share=0.0,
        usd_per_hour=2.5 * replicas,
        misses="" if p95_s < 1 else f"p95 {p95_s:.2f} s",
    )


def run(strategy: str, adapters: int) -> RoutingRun:
    return RoutingRun(
        strategy=strategy,
        adapters=adapters,
        ttft_p50_s=0.1,
        ttft_p95_s=0.3,
        ttft_p99_s=0.5,
        tiers=(0.9, 0.06, 0.03, 0.01),
        loads_per_1000=100.0,
        loads_per_min=20.0,
        evictions_per_min=19.0,
        max_over_mean=1.2,
        cdf=((0.1, 0.5), (0.3, 0.95), (0.5, 1.0)),
    )


PLAN = plan_page([point(23, 0.4), point(21, 1.2), point(22, 0.8)], 1.0, 22, "Fleet A.")
ROUTING = routing_page(
    [run(strategy, size) for size in (1000, 5000, 20_000) for strategy in ("random", "affinity")], 1.0, "A replay.",
    {"seed": "7"},
)  # fmt: skip
SCALING = scaling_page(
    ScaledDay(
        at_s=(0.0, 3600.0),
        requests_per_s=(5.0, 9.0),
        replicas=(3.0, 5.0),
        oracle=(3.0, 4.0),
        late_share=(0.0, 0.02),
    ),
    {"in objective": "98.5 %"},
    "A day.",
    {"seed": "7"},
)
VALIDATION = validation_page(
    [
        Compared(
            workload=name,
            tokens_per_s=Measured(real=(2.9, 3.1), twin=3.0),
            ttft_p50_s=Measured(real=(0.05, 0.06), twin=0.055),
            ttft_p95_s=Measured(real=(0.2, 0.3), twin=0.3),
        )
        for name in ("calm", "<busy>")
    ],
    "Six workloads.",
    {},
)
PAGES = {page.name: page for page in (PLAN, ROUTING, SCALING, VALIDATION)}


PANEL = Panel(
    title="Waits",
    x_label="replicas",
    y_label="seconds",
    series=(Series(name="p95", x=(1, 2, 3), y=(9, 4, 1)), Series(name="p99", x=(1, 2, 3), y=(10, 5, 2), dashed=True)),
    marks=(Mark(at=2.0, label="2 meet it", upright=True), Mark(at=1.0, label="objective")),
)


def test_the_same_page_is_the_same_two_files(tmp_path: Path) -> None:
    page = Page(name="waits", title="Waits", intro="", exhibits=(Exhibit(panel=PANEL, remark=""),))
    first = [path.read_bytes() for path in write_page(page, tmp_path)]
    again = [path.read_bytes() for path in write_page(page, tmp_path)]
    assert first == again
    assert first[0].startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["waits.html", "waits.png"]


@pytest.mark.parametrize("name", PAGES)
def test_every_page_has_its_pictures_and_stands_alone(name: str) -> None:
    said = html(PAGES[name])
    assert said.count("<svg ") == len(PAGES[name].exhibits)
    assert "<script" not in said
    assert not re.findall(r'(?:src|href)="(?!#)[^"]*"', said)
    assert "url(http" not in said
    assert "@import" not in said


def drawn(panel: Panel) -> ElementTree.Element:
    return ElementTree.fromstring(svg(panel).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))


def test_letters_are_text_in_the_ink_of_the_page() -> None:
    picture = drawn(PANEL)
    texts = {text.text for text in picture.iter(f"{SVG}text")}
    assert {"replicas", "seconds", "p95", "p99", "2 meet it", "objective"} <= texts
    assert "Waits" not in texts  # the page has it as a heading
    styles = [text.get("style", "") for text in picture.iter(f"{SVG}text")]
    assert all("currentColor" in style for style in styles)


def test_two_pictures_of_a_page_share_no_id_that_means_two_things() -> None:
    meanings: dict[str, str] = {}
    for exhibit in PLAN.exhibits:
        for element in drawn(exhibit.panel).iter():
            if (name := element.get("id")) is not None:
                shape = re.sub(r"\s+", " ", "".join(filter(None, (ElementTree.tostring(element).decode(),))))
                assert meanings.setdefault(name, shape) == shape


def test_what_is_said_is_escaped() -> None:
    page = Page(name="x", title="a < b", intro="<b>", exhibits=(Exhibit(panel=PANEL, remark="&"),))
    said = html(page)
    assert "a &lt; b" in said
    assert "&lt;b&gt;" in said
    assert "<td>&lt;busy&gt;</td>" in html(VALIDATION)


def test_a_plan_is_ordered_by_replicas_and_says_who_misses_what() -> None:
    waits = PLAN.exhibits[0]
    assert waits.table is not None
    assert [row[0] for row in waits.table.rows] == ["21", "22", "23"]
    assert [row[-1] for row in waits.table.rows] == ["p95 1.20 s", "met", "met"]
    assert waits.panel.series[1].y == (1.2, 0.8, 0.4)
    assert Mark(at=22, label="22 meet the objective", upright=True) in waits.panel.marks


def test_a_plan_that_nobody_meets_marks_no_number() -> None:
    page = plan_page([point(2, 3.0)], 1.0, None, "Too few.")
    assert not any(mark.upright for exhibit in page.exhibits for mark in exhibit.panel.marks)


def test_a_low_hit_rate_stays_in_the_picture() -> None:
    [_, hits, _] = plan_page([replace(point(22, 0.5), gpu_hit=0.4)], 1.0, 22, "").exhibits
    assert hits.panel.y_range is not None
    assert hits.panel.y_range[0] < 40


def test_curves_are_of_the_middle_number_of_adapters_and_bars_of_all() -> None:
    cdf, tiers, waits, loads = (exhibit.panel for exhibit in ROUTING.exhibits)
    assert "5,000" in cdf.title
    assert tiers.places == ("random", "affinity")
    assert waits.places == loads.places == ("1,000", "5,000", "20,000")
    assert [series.name for series in loads.series] == ["random", "affinity"]


def test_the_twin_is_compared_with_all_runs() -> None:
    measured = Measured(real=(0.2, 0.3), twin=0.3)
    assert measured.error == pytest.approx(0.2)
    assert measured.spread == pytest.approx(0.2)
    table = VALIDATION.exhibits[2].table
    assert table == Table(
        columns=("workload", "real", "spread", "twin", "error"),
        rows=(("calm", "250", "± 20.0%", "300", "+20.0%"), ("<busy>", "250", "± 20.0%", "300", "+20.0%")),
    )
