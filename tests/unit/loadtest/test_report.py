from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from loadtest import report
from loadtest.report import REPORTS, Figure, read_reports, shortfalls, table, write_report


@pytest.mark.parametrize(
    ("value", "target", "met"),
    [
        (1.0, "<= 1.0", True), (1.1, "<= 1.0", False), (1.0, "< 1", False), (640.0, ">= 640", True),
        (639.9, ">=640", False), (2.0, "> 1e-3", True), (1.0, None, None),
        (None, "<= 1", False), (None, None, None), (float("nan"), "<= 1", False), (float("inf"), ">= 1", False),
    ],
)  # fmt: skip
def test_a_figure_meets_its_target_or_does_not(value: float | None, target: str | None, met: bool | None) -> None:
    assert Figure(value=value, unit="s", target=target).met is met


@pytest.mark.parametrize("target", ["1.0", "about 1", "<= one", "== 1", ""])
def test_a_target_that_compares_with_nothing_is_refused(target: str) -> None:
    with pytest.raises(ValueError, match="a target is a comparison"):
        Figure(value=1.0, unit="s", target=target)


def test_a_report_says_what_was_measured_where_and_when(tmp_path: Path) -> None:
    figures = {
        "ttft_s.gpu": Figure(value=0.2, unit="s", target="<= 1.0"),
        "tokens_per_s.b8": Figure(value=9, unit="1/s"),
    }
    path = write_report("bench", figures, tmp_path / "reports")
    assert path == tmp_path / "reports" / "bench.json"
    said = json.loads(path.read_text())
    assert list(said) == ["commit", "date", "machine", "figures"]
    assert re.fullmatch(rf".+, {os.cpu_count()} cores, [1-9]\d* GiB", said["machine"])
    assert said["date"].endswith("+00:00")
    assert said["commit"] != ""
    assert said["figures"] == {
        "ttft_s.gpu": {"value": 0.2, "unit": "s", "target": "<= 1.0", "met": True},
        "tokens_per_s.b8": {"value": 9, "unit": "1/s", "target": None, "met": None},
    }
    assert [one.name for one in path.parent.iterdir()] == ["bench.json"]


def test_what_was_written_is_read_and_what_falls_short_is_named(tmp_path: Path) -> None:
    write_report("load", {"hit_rate": Figure(value=0.9, unit="", target=">= 0.95")}, tmp_path)
    write_report("bench", {"ttft_s.gpu": Figure(value=0.2, unit="s", target="<= 1.0")}, tmp_path)
    write_report("bench", {"ttft_s.gpu": Figure(value=1.25, unit="s", target="<= 1.0")}, tmp_path)
    reports = read_reports(tmp_path)
    assert [one.name for one in reports] == ["bench", "load"]
    assert shortfalls(reports) == [
        "bench  ttft_s.gpu  1.25 s, target <= 1.0",
        "load  hit_rate  0.9, target >= 0.95",
    ]


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_what_was_not_measured_falls_short_also_when_read_again(tmp_path: Path, value: float | None) -> None:
    write_report("bench", {"ttft_s.gpu": Figure(value=value, unit="s", target="<= 1.0")}, tmp_path)
    assert shortfalls(read_reports(tmp_path)) == ["bench  ttft_s.gpu  not measured, target <= 1.0"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"commit": "a", "date": "b", "machine": "c", "figures": {"x": 1}}'])
def test_a_file_that_is_no_report_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "bench.json").write_text(text)
    with pytest.raises(ValueError, match=r"bench\.json is no report"):
        read_reports(tmp_path)


def test_every_committed_report_can_be_read_and_names_no_place_of_the_machine_that_made_it() -> None:
    """One that cannot would end `make targets`."""
    assert {"engine", "isolation", "vllm"} <= {one.name for one in read_reports()}
    for path in REPORTS.glob("*.json"):
        assert not re.search(r"(?<![a-z0-9])/(home|root|tmp|work|usr|var|opt|Users)/", path.read_text()), path


def test_the_command_lists_what_falls_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "read_reports", lambda: read_reports(tmp_path))
    report.main()
    assert capsys.readouterr().out.startswith("no reports yet")
    good, bad = (Figure(value=value, unit="s", target="<= 1.0") for value in (0.5, 1.5))
    write_report("bench", {"ttft_s.gpu": good, "ttft_s.remote": bad}, tmp_path)
    report.main()
    assert capsys.readouterr().out.splitlines() == [
        "bench  ttft_s.remote  1.5 s, target <= 1.0",
        "1 of 2 figures with a target fall short",
    ]


def test_a_table_shows_what_falls_short() -> None:
    shown = table({"a": Figure(value=2.0, unit="s", target="<= 1.0"), "long": Figure(value=1.5, unit="token/s")})
    assert shown.splitlines() == ["a     2 s          <= 1.0  SHORT", "long  1.5 token/s"]
