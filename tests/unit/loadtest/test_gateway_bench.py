"""What the comparison of front doors makes of what it saw."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from loadtest.gateway_bench import markdown
from loadtest.gateway_bench.figures import Front, failures, figures
from loadtest.gateway_bench.machine import Reading, pinned, tree
from loadtest.gateway_bench.measuring import Heard, Sample, Spread, sample
from loadtest.gateway_bench.peers import Setting, litellm, nginx
from loadtest.gateway_bench.records import Cast
from loadtest.gateway_bench.scenarios import ALL, FEW, FLOOD, MANY, ONE_TOKEN, OPEN
from loadtest.gateway_bench.stamps import first_stamp, later_stamp, pace_s
from loadtest.gateway_bench.stepping import step_begins_s, until_step_s
from loadtest.report import Figure, Report
from shared.messages.generation import ChatMessage, GenerateRequest, Sampling

HEARD = Heard(
    added_ttft_ms=Spread(p50=0.5, p95=1.5, p99=3.0), ttft_ms=Spread(p50=20.0, p95=26.0, p99=30.0),
    relay_ms=Spread(p50=0.2, p95=0.6, p99=1.0), took_s=10.0, completed=400, failed=0, first_failed_status=0,
    tokens=100_000, unconnected=0, most_streams=260, under_way=250,
)  # fmt: skip


def seen(name: str, cpu_s: Mapping[str, float], rss_bytes: Mapping[str, int] | None = None, **heard: object) -> Sample:
    return Sample(
        scenario=name, heard=msgspec.structs.replace(HEARD, **heard), cpu_s=cpu_s, rss_bytes=rss_bytes or {},
        noise_share=0.25,
    )  # fmt: skip


def front(name: str, *samples: Sample, saying: Sample | None = None) -> Front:
    return Front(name=name, idle_bytes=80_000_000, samples={each.scenario: each for each in samples}, saying=saying)


def ours(gateway_s: float = 3.0) -> Front:
    paced = seen(OPEN.name, {"gateway": gateway_s, "nats": 0.6, "worker": 4.0, "client": 1.0})
    late = Spread(p50=0.9, p95=2.0, p99=4.0)
    saying = seen(OPEN.name, {"gateway": 3.0, "worker": 0.5, "client": 1.0}, added_ttft_ms=late)
    return front("lorafleet", paced, saying=saying)


def value(found: Mapping[str, Figure], name: str) -> float | None:
    return found[name].value


def test_each_process_is_stated_by_itself_and_ours_has_the_targets() -> None:
    found = figures({"lorafleet": ours()})
    assert value(found, "cpu_us_per_token") == 30.0
    assert value(found, "cpu_us_per_token_nats") == 6.0
    assert value(found, "cpu_us_per_token_worker") == 40.0
    assert value(found, "cpu_us_per_token_publishing") == 5.0
    assert found["added_ttft_ms.p50"].target is None


def test_what_is_added_counts_over_the_backends_called_directly() -> None:
    late = Spread(p50=0.2, p95=0.4, p99=0.5)
    direct = front("direct", seen(OPEN.name, {"client": 1.0}, added_ttft_ms=late))
    found = figures({"direct": direct, "lorafleet": ours()})
    assert found["added_ttft_over_direct_ms.p50"] == Figure(value=0.7, unit="ms", target="<= 1.0")
    assert found["added_ttft_over_direct_ms.p95"] == Figure(value=1.6, unit="ms", target="<= 2.5")
    assert "added_ttft_over_direct_ms.p50" not in figures({"lorafleet": ours()})


def test_what_was_added_is_what_light_replicas_saw_and_the_whole_workers_is_told_beside() -> None:
    found = figures({"lorafleet": ours()})
    assert value(found, "added_ttft_ms.p50") == 0.9
    assert value(found, "added_ttft_ms.p50.timed_workers") == 0.5


def test_ratios_are_within_one_run_and_only_where_both_were_measured() -> None:
    rival = front("vllm_router", seen(OPEN.name, {"router": 4.0, "mock": 1.0, "client": 1.0}))
    found = figures({"vllm_router": rival, "lorafleet": ours()})
    assert value(found, "cpu_per_token_vs_vllm_router") == 0.75
    assert value(found, "cpu_per_token_with_nats_vs_vllm_router") == 0.9
    assert found["cpu_per_token_with_nats_vs_vllm_router"].target == "<= 1.3"
    assert "flood_tokens_per_s_vs_vllm_router" not in found
    assert "cpu_per_token_vs_vllm_router" not in figures({"lorafleet": ours()})


def test_a_gateway_that_costs_more_than_the_rival_falls_short() -> None:
    rival = front("vllm_router", seen(OPEN.name, {"router": 2.0}))
    assert figures({"vllm_router": rival, "lorafleet": ours()})["cpu_per_token_vs_vllm_router"].met is False


def test_requests_floods_and_open_streams() -> None:
    memory = {"gateway": 100_000_000, "nats": 5}
    grown = {"gateway": 138_000_000, "nats": 90_000_000}
    mine = front(
        "lorafleet",
        seen(FLOOD.name, {"gateway": 9.0}),
        seen(ONE_TOKEN.name, {"gateway": 9.5, "nats": 0.4}, completed=25_000),
        seen(FEW.name, {}, memory, under_way=100),
        seen(MANY.name, {}, grown, under_way=2_000),
    )
    found = figures({"lorafleet": mine})
    assert value(found, "flood_tokens_per_s") == 10_000.0
    assert value(found, "flood_core_share") == 0.9
    assert value(found, "requests_per_s") == 2_500.0
    assert value(found, "cpu_us_per_request") == 380.0
    assert value(found, "cpu_us_per_request_nats") == 16.0
    assert value(found, "bytes_per_open_stream") == 20_000.0


def test_who_said_nothing_has_no_figures_and_who_failed_is_counted() -> None:
    silent = front("litellm", seen(OPEN.name, {"router": 9.0}, tokens=0, completed=0, failed=30, unconnected=2))
    found = figures({"litellm": silent})
    assert "cpu_us_per_token.litellm" not in found
    assert value(found, "failed_requests.litellm") == 32
    assert failures(silent) == {"open40": 32}


def test_what_others_took_is_what_nobody_accounts_for() -> None:
    before = Reading(at_s=0.0, cpu_s={"gateway": 1.0, "client": 0.0}, busy_s=100.0)
    after = Reading(at_s=10.0, cpu_s={"gateway": 5.0, "client": 1.0}, busy_s=108.0)
    found = sample("open40", HEARD, (before, after), {})
    assert found.cpu_s == {"gateway": 4.0, "client": 1.0}
    assert found.noise_share == pytest.approx(0.3)


def test_the_page_shows_every_door_that_was_measured() -> None:
    found = figures({"lorafleet": ours(), "nginx": front("nginx", seen(OPEN.name, {"router": 2.0}))})
    report = Report(name="gateway", commit="c", date="2026-01-02T03:04:05+00:00", machine="a machine", figures=found)
    lines = markdown.part(report).splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")]
    assert "a machine, 2026-01-02" in lines[0]
    assert len({len(row) for row in rows}) == 1
    assert rows[1][:2] == ["nginx", "20"]
    assert rows[2][:4] == ["**lorafleet**", "30", "0.9", "2"]
    assert rows[2][5] == "–"
    assert "nats-server 6, a whole worker 40, of it, what publishes 5" in markdown.part(report)


def test_the_part_is_put_between_its_marks_and_nowhere_else() -> None:
    page = f"before\n{markdown.BEGIN}old\n{markdown.END}after\n"
    assert markdown.replaced(page, "new\n") == f"before\n{markdown.BEGIN}new\n{markdown.END}after\n"
    with pytest.raises(ValueError, match="no part"):
        markdown.replaced("nothing", "new")


def test_the_readme_has_a_place_for_it() -> None:
    markdown.replaced(markdown.PAGE.read_text(), "new\n")


@pytest.mark.parametrize(("now_s", "offset", "ends_s"), [(8.0, 0.0, 8.25), (8.01, 0.0, 8.25), (8.01, 0.5, 8.375)])
def test_steps_end_at_a_grid(now_s: float, offset: float, ends_s: float) -> None:
    assert now_s + until_step_s(now_s, 0.25, offset) == pytest.approx(ends_s)


def test_a_step_follows_the_last_one_unless_there_was_nothing_to_do() -> None:
    assert step_begins_s(10.01, 10.0, 0.05) == 10.0
    assert step_begins_s(10.06, 10.0, 0.05) == 10.06
    assert step_begins_s(9.99, 10.0, 0.05) == 9.99


def test_a_timer_that_rings_early_makes_no_second_step() -> None:
    assert 8.249 + until_step_s(8.249, 0.25, 0.0) == pytest.approx(8.5)
    assert until_step_s(8.249, 0.0, 0.0) == 0.0


def test_a_request_says_its_pace_and_tokens_say_their_moment() -> None:
    request = GenerateRequest(
        request_id="r", gateway_id="g", tenant_id="t", pool_id="p", base_model_hash="b", sampling=Sampling(seed=1),
        messages=(ChatMessage(role="user", content="0123 @mock itl_us=25000 abc"),),
    )  # fmt: skip
    assert pace_s(request) == 0.025
    plain = msgspec.structs.replace(request, messages=(ChatMessage(role="user", content="hello"),))
    assert pace_s(plain) == 0.0
    assert first_stamp(20, 10) == " @20/10 "
    assert later_stamp(30) == " @30 "


def test_the_client_is_told_either_a_rate_or_streams() -> None:
    for scenario in ALL:
        words = scenario.words()
        assert ("--rate" in words) != ("--streams" in words), scenario.name
    assert pinned(1, ["a"]) == ["taskset", "-c", "1", "a"]
    assert pinned(None, ["a"]) == ["a"]


def test_a_cast_has_a_file_and_an_alias_for_each_adapter() -> None:
    cast = Cast(base_model_hash="b" * 64, key="sk", customers=12, adapter_bytes=64)
    adapters = cast.adapters()
    assert len({each.digest for each in adapters}) == len(set(cast.aliases)) == 12
    assert {len(cast.content(at)) for at in range(12)} == {64}
    assert {each.pool_id for each in adapters} == {cast.pool_id}


def test_peers_are_given_every_name_and_every_backend(tmp_path: Path) -> None:
    at = Setting(folder=tmp_path, port=8100, backends=(9001, 9002, 9003), names=("a/x:prod", "a/y:prod"), key="sk-1")
    litellm(at)
    listed = json.loads((tmp_path / "litellm.yaml").read_text())["model_list"]
    assert {each["model_name"] for each in listed} == set(at.names)
    assert {each["litellm_params"]["api_base"] for each in listed} == {f"{url}/v1" for url in at.urls}
    nginx(at)
    told = (tmp_path / "nginx.conf").read_text()
    assert all(f"server 127.0.0.1:{port};" in told for port in at.backends)


def test_a_process_without_children_is_its_own_tree() -> None:
    assert next(iter(tree(1))) == 1
