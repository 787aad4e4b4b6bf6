"""The engine benchmark's arithmetic: from the answers of every round to figures and their targets."""

from __future__ import annotations

import pytest

from loadtest import gpu_engine
from loadtest.engine_cases import Answer, ColdStart, Decode, FirstToken, Gaps, Loads, Memory, Thrash
from loadtest.engine_figures import TARGETS, engine_figures
from loadtest.engine_plan import Visit, cell, one_round
from loadtest.report import read_report

ROUNDS = 3


def answer_to(visit: Visit) -> Answer:
    """An engine that takes 1 ms a row and adapter, and others that take five times as long."""
    match visit.question:
        case Decode(rows=rows, distinct=distinct, steps=steps):
            slow = 5 if visit.peer in ("vllm", "vllm_lora", "transformers", "peft") else 1
            return [slow * (rows + distinct) / 1000] * steps
        case FirstToken():
            return [0.5]
        case ColdStart(probe=probe):
            return [0.2 if probe else 0.19]
        case Gaps(steps=steps, loading=loading):
            return [{"none": 0.01, "steady": 0.011, "back_to_back": 0.02}[loading]] * steps
        case Loads(pairs=pairs):
            return [0.003, 0.002] * pairs
        case Memory() | Thrash():
            return [0.0, 0.0]


def visits(*left_out: str) -> dict[str, list[Answer]]:
    found: dict[str, list[Answer]] = {
        "memory.many": [[1e9 + 24 * 20e6, 10e6]], "memory.few": [[1e9, 10e6]], "thrash": [[1.7, 40.0, 68.0]],
    }  # fmt: skip
    for _ in range(ROUNDS):
        for visit in one_round(threads=1):
            if visit.peer not in left_out:
                found.setdefault(visit.key, []).append(answer_to(visit))
    return found


def test_every_target_of_the_engine_is_a_figure_and_stands_first() -> None:
    figures = engine_figures(visits())
    assert list(figures)[: len(TARGETS)] == list(TARGETS)
    assert {name: figure.target for name, figure in figures.items() if figure.target} == dict(TARGETS)
    assert None not in [figure.value for figure in figures.values()]


def test_comparisons_say_how_many_times_as_fast_we_are() -> None:
    figures = engine_figures(visits())
    assert figures["share.b32.d8"].value == 0.8
    assert figures["share.b32.d32.rank64"].value == 0.5
    assert [figures[name].value for name in ("base_vs_vllm.b32", "mixed_vs_peft.b8.d4")] == [5.0, 5.0]
    assert (figures["tokens_per_s.b32.base"].value, figures["step_ms.b32.base"].value) == (1000.0, 32.0)
    assert (figures["ram_to_slot_vs_copy"].value, figures["itl_p99_loading_ratio"].value) == (1.5, 1.1)
    assert (figures["itl_p99_loading_ratio.back_to_back"].value, figures["itl_p99_ms.loading"].value) == (2.0, 11.0)
    assert (figures["probe_ttft_share"].value, figures["probe_ms"].value) == (0.05, 10.0)
    assert (figures["thrash_ttft_ratio"].value, figures["ttft_ms.thrash"].value) == (1.7, 68.0)
    assert (figures["slot_mb"].value, figures["adapter_mb"].value) == (20.0, 10.0)


def test_a_round_that_the_machine_spoilt_changes_no_comparison() -> None:
    """Each round is compared with itself: what slows both alike cancels out, and one wild value is no median."""
    found = visits()
    for key in ("b32.base", "b32.d8"):
        found[key][0] = [10 * step_s for step_s in found[key][0]]
    found["b32.d8"][1] = [100 * step_s for step_s in found["b32.d8"][1]]
    assert engine_figures(found)["share.b32.d8"].value == 0.8


def test_a_step_that_a_neighbour_spoilt_is_not_the_engines() -> None:
    found = visits()
    for key in ("b32.base", "b32.d8"):
        found[key] = [[*answer[:-1], 50.0] for answer in found[key]]
    assert engine_figures(found)["step_ms.b32.base"].value == 32.0
    assert engine_figures(found)["share.b32.d8"].value == 0.8


def test_rounds_are_compared_with_themselves_and_not_with_each_other() -> None:
    """The best of one engine beside the best of another would compare two states of the machine."""
    found = visits()
    found["b32.base"], found["b32.d8"] = [[2.0], [1.0], [4.0]], [[2.5], [5.0], [5.0]]
    assert engine_figures(found)["share.b32.d8"].value == 0.8


def test_what_is_aimed_at_is_what_was_promised() -> None:
    promised = {
        "share.b32.d1": ">= 0.90", "share.b32.d8": ">= 0.80", "share.b32.d32": ">= 0.60",
        "base_vs_vllm.b32": ">= 1.0", "base_vs_transformers.b8": ">= 1.5",
        "mixed_vs_vllm.b32.d8": ">= 2", "mixed_vs_peft.b8.d4": ">= 2",
        "itl_p99_loading_ratio": "<= 1.2", "ram_to_slot_vs_copy": "<= 1.5",
        "thrash_ttft_ratio": "<= 2", "probe_ttft_share": "<= 0.05",
    }  # fmt: skip
    assert promised == TARGETS
    assert {name: figure.target for name, figure in read_report("engine").figures.items() if figure.target} == promised
    assert gpu_engine.TARGETS == {
        "share.b32.d1": ">= 0.97", "share.b32.d4": ">= 0.97", "share.b32.d8": ">= 0.94", "share.b32.d32": ">= 0.85",
        "base_vs_bound.b32": ">= 0.70",
    }  # fmt: skip


def test_without_vllm_its_figures_fall_short_as_not_measured_and_all_others_stand() -> None:
    figures = engine_figures(visits("vllm", "vllm_lora"))
    assert {name for name, figure in figures.items() if figure.value is None} == {
        "base_vs_vllm.b32",
        "mixed_vs_vllm.b32.d8",
    }
    assert figures["base_vs_vllm.b32"].met is False


def test_the_table_is_whole() -> None:
    keys = {visit.key for visit in one_round(threads=1)}
    for condition in ("", "rank8", "rank64"):
        for rows in (1, 8, 32):
            for distinct in (0, 1, 4, 8, 32):
                assert (cell(rows, distinct, condition) in keys) == (distinct <= rows)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("b32.base", "b32.base.vllm"), ("b32.d8", "b32.d8.vllm"),
        ("b8.base", "b8.base.transformers"), ("b8.d4", "b8.d4.peft"),
    ],
)  # fmt: skip
def test_what_is_compared_is_the_same_question_asked_side_by_side(ours: str, theirs: str) -> None:
    plan = one_round(threads=1)
    at = next(at for at, visit in enumerate(plan) if visit.key == ours)
    assert plan[at + 1].key == theirs
    assert plan[at].question == plan[at + 1].question
