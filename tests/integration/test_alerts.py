"""The rules that Prometheus is given, judged by promtool; and that whatever they and the dashboard name is exposed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from infra.grafana import dashboard
from infra.prometheus import program
from infra.prometheus.program import find_promtool
from tests.support import metrics_table
from tests.support.metrics_table import Families, exposed, series

RULES = Path(program.__file__).parent
FILES = (RULES / "recording.yml", RULES / "alerts.yml")
TESTS = RULES / "tests/alerts.yml"
_NAME = re.compile(r"\b(?:lorafleet|vllm)[_:][a-z0-9_:]+")
_RECORDED = re.compile(r"record: (\S+)")
_ALERT = re.compile(r"alert: (\S+)")

Exposed = dict[str, Families]


def promtool(*argv: str) -> str:
    done = subprocess.run([find_promtool(), *argv], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
async def found() -> Exposed:
    return await exposed()


def unknown(text: str, found: Exposed) -> set[str]:
    recorded = {name for file in FILES for name in _RECORDED.findall(file.read_text())}
    return set(_NAME.findall(text)) - recorded - series(found)


def test_the_rules_are_rules_and_do_what_their_tests_say() -> None:
    promtool("check", "rules", *map(str, FILES))
    promtool("test", "rules", str(TESTS))


def test_a_rule_that_never_fires_fails_its_test(tmp_path: Path) -> None:
    for file in FILES:
        (tmp_path / file.name).write_text(file.read_text().replace("> 30", "> 3000"))
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/alerts.yml").write_text(TESTS.read_text())
    with pytest.raises(AssertionError, match="LorafleetThrashing"):
        promtool("test", "rules", str(tmp_path / "tests/alerts.yml"))


def test_every_alert_is_tested_and_explained() -> None:
    alerts = set(_ALERT.findall(FILES[1].read_text()))
    fired = re.findall(r"alertname: (\S+)\n\s+eval_time: \S+\n\s+exp_alerts:\n", TESTS.read_text())
    assert alerts == set(fired)
    assert alerts == set(re.findall(r"`(Lorafleet\w+)`", metrics_table.PAGE.read_text()))


async def test_what_the_rules_ask_for_is_exposed(found: Exposed) -> None:
    for file in FILES:
        assert unknown(file.read_text(), found) == set()
    assert unknown("rate(lorafleet_gateway_ttft_secs_bucket[5m])", found) == {"lorafleet_gateway_ttft_secs_bucket"}


async def test_what_the_dashboard_asks_for_is_exposed(found: Exposed) -> None:
    for panel in dashboard.PANELS:
        for query in panel.asked.values():
            assert unknown(query, found) == set(), panel.title
    assert dashboard.FILE.read_text() == dashboard.text(), "python -m infra.grafana.dashboard writes it"


async def test_the_table_of_metrics_is_that_of_the_code(found: Exposed) -> None:
    page = metrics_table.PAGE.read_text()
    assert page == metrics_table.with_table(page, found), "python -m tests.support.metrics_table writes it"


def test_without_promtool_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(program.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"python -m infra\.prometheus\.program"):
        find_promtool()
    with pytest.raises(FileNotFoundError, match=r"Debian's package prometheus cannot be had \(.*\): put promtool on"):
        program.fetch()
