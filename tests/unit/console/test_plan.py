"""`lorafleet plan`: no fleet needed, one sentence and exit code 2 for what makes no sense."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from loadtest.capacity.question import Question
from services.console.__main__ import main
from services.console.core.outcome import OK, REFUSED, USAGE
from services.console.plan_arguments import NUMBERS, WHOLE

CONFIG = {
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "torch_dtype": "float16",
    "vocab_size": 32000,
}
TRAFFIC = ("--rank", "16", "--adapters", "5000", "--rate", "40", "--prompt", "750", "--output", "250")


def test_a_preset_is_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--preset", "fleet-a"]) == OK
    said = capsys.readouterr().out
    assert said.startswith("One adapter\n")
    assert "65 USD/h" in said


def test_a_model_and_its_traffic_are_the_same_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert main(["plan", "--model", str(tmp_path), *TRAFFIC, "--json"]) == OK
    of_model = json.loads(capsys.readouterr().out)
    assert main(["plan", "--preset", "fleet-a", "--json"]) == OK
    assert json.loads(capsys.readouterr().out) == of_model


def test_options_change_a_preset_in_their_own_units(capsys: pytest.CaptureFixture[str]) -> None:
    changes = ["--step-ms", "40", "--store-gb-s", "0.4", "--gpu-gb", "141", "--targets", "q_proj,v_proj"]
    assert main(["plan", "--preset", "fleet-a", "--json", *changes]) == OK
    question = json.loads(capsys.readouterr().out)["question"]
    assert question["step_s"] == pytest.approx(0.04)
    assert question["store_bytes_per_s"] == pytest.approx(4e8)
    assert question["gpu_bytes"] == pytest.approx(141e9)
    assert question["targets"] == ["q_proj", "v_proj"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--preset", "fleet-z"], "There is no preset fleet-z; there are fleet-a and fleet-b."),
        (["--preset", "fleet-a", "--rate", "0"], "rate_per_s is 0 and has to be above 0."),
        (["--preset", "fleet-a", "--targets", "lm_head"], "lm_head is no target module; there are q_proj"),
        (["--model", "nowhere.json", *TRAFFIC], "nowhere.json cannot be read: No such file or directory."),
        (["--preset", "fleet-a", "--minutes", "-1"], "-1 minutes cannot be simulated; there have to be some."),
        (["--preset", "fleet-a", "--trace", "nowhere.csv"], "nowhere.csv cannot be read: No such file or directory."),
        (["--model", "nowhere.json", "--rate", "3"], "A plan for a model needs --adapters, --prompt, --output too."),
    ],
)
def test_bad_input_is_one_sentence(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *words]) == USAGE
    told = capsys.readouterr()
    assert told.err.startswith(sentence)
    assert told.err.count("\n") == 1
    assert not told.out


SMALL = ("--adapters", "40", "--rate", "6", "--prompt", "100", "--output", "50", "--rows", "8", "--slot-cap", "12")


def test_a_simulation_finds_a_size_and_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "--preset", "fleet-a", *SMALL, "--objective", "5", "--simulate", "--minutes", "0.2"]
    assert main([*words, "--out", str(tmp_path), "--json"]) == OK
    said = json.loads(capsys.readouterr().out)
    assert said["simulation"]["smallest"] >= 2
    assert said["simulation"]["seed"] == 1
    assert [Path(file).name for file in said["files"]] == ["plan.png", "plan.html"]
    assert all(Path(file).exists() for file in said["files"])


def test_an_objective_that_no_size_meets_is_a_refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "--preset", "fleet-a", *SMALL, "--objective", "0.001", "--simulate", "--minutes", "0.1"]
    assert main([*words, "--out", str(tmp_path)]) == REFUSED
    assert "No fleet that was tried meets the objective: " in capsys.readouterr().err


def test_every_option_is_a_number_of_the_question() -> None:
    kinds = {field.name: field.type for field in msgspec.structs.fields(Question)}
    assert {field for _, field, _, _ in NUMBERS} <= set(kinds)
    assert {field for _, field, _, _ in NUMBERS if kinds[field] is int} == set(WHOLE)


def test_other_commands_do_not_pay_for_the_planner() -> None:
    script = "import sys, services.console.__main__; print(sorted(n for n in sys.modules if n.startswith('loadtest')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
