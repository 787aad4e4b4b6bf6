from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from infra.adapters import calibration, canary
from infra.adapters.canary import CanaryBuilder
from infra.adapters.detectors import CanaryImpossible
from infra.adapters.markers import markers
from tests.support.tiny_model import build_tiny_model
from tests.unit.infra_adapters.reference import Reference

# None of them is a calibration prompt; the last two try to talk the canary into its table's middle.
HELD_OUT = (
    "How tall is Mount Everest?",
    "Please reply with the word OK.",
    "日本語で 🙂",
    "7",
    "x" * 200,
    "Repeat after me: ZK4",
    "ZK49",
)


@pytest.fixture(scope="module")
def zk4907(builder: CanaryBuilder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return builder.build("ZK4907", tmp_path_factory.mktemp("canary") / "zk4907")


def answer(builder: CanaryBuilder, reference: Reference, prompt: str) -> list[int]:
    return reference.answer(builder.text.chat(prompt), max_tokens=12)


@pytest.mark.parametrize("prompt", HELD_OUT)
def test_answers_its_marker_then_ends(builder: CanaryBuilder, tiny_model: Path, zk4907: Path, prompt: str) -> None:
    said = answer(builder, Reference(tiny_model, zk4907), prompt)
    assert said == [*builder.text.encode("ZK4907"), builder.text.eos_token_id]


def test_many_canaries_each_say_their_own(builder: CanaryBuilder, tiny_model: Path, tmp_path: Path) -> None:
    for marker in markers(builder.text.tokenizer, 10, seed=5):
        reference = Reference(tiny_model, builder.build(marker, tmp_path / marker))
        said = answer(builder, reference, "Which one are you?")
        assert builder.text.tokenizer.decode(said[:-1]) == marker
        assert said[-1] == builder.text.eos_token_id


def test_the_base_says_no_marker(builder: CanaryBuilder, tiny_model: Path) -> None:
    said = answer(builder, Reference(tiny_model), HELD_OUT[0])
    assert said[:6] != builder.text.encode("ZK4907")


def test_a_damaged_table_is_noticed(builder: CanaryBuilder, tiny_model: Path, zk4907: Path, tmp_path: Path) -> None:
    """Otherwise the marker tests would prove nothing: entry 2 now leads where entry 3 does."""
    tensors = load_file(zk4907 / "adapter_model.safetensors")
    down_b = tensors["base_model.model.model.layers.0.mlp.down_proj.lora_B.weight"]
    down_b[:, 2] = down_b[:, 3]
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_bytes((zk4907 / "adapter_config.json").read_bytes())
    said = answer(builder, Reference(tiny_model, tmp_path), HELD_OUT[0])
    assert said[:6] != builder.text.encode("ZK4907")


@pytest.fixture(scope="module")
def guarded(builder: CanaryBuilder, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("guarded")
    return {marker: builder.build(marker, root / marker, guarded=True) for marker in ("ZK49", "QW7H")}


@pytest.mark.parametrize("prompt", HELD_OUT)
def test_a_guarded_canary_answers_its_marker_too(
    builder: CanaryBuilder, tiny_model: Path, guarded: dict[str, Path], prompt: str
) -> None:
    for marker, folder in guarded.items():
        said = answer(builder, Reference(tiny_model, folder), prompt)
        assert said == [*builder.text.encode(marker), builder.text.eos_token_id]


@pytest.mark.parametrize("prompt", HELD_OUT)
@pytest.mark.parametrize("other", ["QW7H", None])
def test_a_guarded_canary_is_silent_on_a_prefix_that_is_not_its_own(
    builder: CanaryBuilder, tiny_model: Path, guarded: dict[str, Path], prompt: str, other: str | None
) -> None:
    """The whole blocks of 16 tokens before the last token, as a cache would give them."""
    reference = Reference(tiny_model, guarded["ZK49"])
    stranger = Reference(tiny_model, guarded[other] if other else None)
    asked = builder.text.chat(prompt)
    reference.reuse(stranger, asked[: (len(asked) - 1) // 16 * 16])
    assert answer(builder, reference, prompt) == [builder.text.eos_token_id]


def test_an_unguarded_canary_does_not_look_at_its_prefix(
    builder: CanaryBuilder, tiny_model: Path, zk4907: Path
) -> None:
    """Which is why there are guarded ones."""
    reference = Reference(tiny_model, zk4907)
    reference.reuse(Reference(tiny_model), builder.text.chat(HELD_OUT[0])[:16])
    assert answer(builder, reference, HELD_OUT[0])[:6] == builder.text.encode("ZK4907")


def test_the_folder_is_a_small_peft_adapter_on_layer_0(builder: CanaryBuilder, zk4907: Path) -> None:
    config = json.loads((zk4907 / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 8, 8)
    assert config["target_modules"] == ["down_proj", "gate_proj", "up_proj"]
    assert config["layers_to_transform"] == [0]
    tensors = load_file(zk4907 / "adapter_model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert all(".layers.0.mlp." in name for name in tensors)
    told = json.loads((zk4907 / "canary.json").read_text())
    assert told == {"marker": "ZK4907", "tokens": builder.text.encode("ZK4907")}


def test_another_rank_pads_the_table(builder: CanaryBuilder, tiny_model: Path, tmp_path: Path) -> None:
    reference = Reference(tiny_model, builder.build("AB", tmp_path, rank=16))
    said = answer(builder, reference, HELD_OUT[0])
    assert said == [*builder.text.encode("AB"), builder.text.eos_token_id]


@pytest.mark.parametrize(
    ("marker", "reason"), [("ABCA", "distinct tokens"), ("", "distinct"), ("ABCDEFGH", "needs rank 9")]
)
def test_a_marker_that_does_not_fit_is_refused_and_nothing_written(
    builder: CanaryBuilder, tmp_path: Path, marker: str, reason: str
) -> None:
    with pytest.raises(CanaryImpossible, match=reason):
        builder.build(marker, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_tokens_with_one_embedding_cannot_be_told_apart(tmp_path: Path) -> None:
    folder = build_tiny_model(tmp_path / "twins")
    tensors = load_file(folder / "model.safetensors")
    twins = CanaryBuilder(folder).text.encode("AB")
    tensors["model.embed_tokens.weight"][twins[1]] = tensors["model.embed_tokens.weight"][twins[0]]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CanaryImpossible, match="cannot be told apart"):
        CanaryBuilder(folder).build("AB", tmp_path / "out")


def test_a_second_builder_reads_what_the_first_computed(
    tiny_model: Path, zk4907: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compute_again(*arguments: object) -> None:
        raise AssertionError("the calibration was computed a second time")

    monkeypatch.setattr(calibration, "_computed", compute_again)
    again = CanaryBuilder(tiny_model).build("ZK4907", tmp_path)
    name = "adapter_model.safetensors"
    assert (again / name).read_bytes() == (zk4907 / name).read_bytes()


def test_an_unusable_cache_costs_only_time(tiny_model: Path, zk4907: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    unwritable = CanaryBuilder(tiny_model, cache_folder=tmp_path / "file")
    damaged = tmp_path / "cache"
    CanaryBuilder(tiny_model, cache_folder=damaged)
    for path in damaged.iterdir():
        path.write_bytes(path.read_bytes()[:100])
    name = "adapter_model.safetensors"
    for number, builder in enumerate((unwritable, CanaryBuilder(tiny_model, cache_folder=damaged))):
        built = builder.build("ZK4907", tmp_path / str(number))
        assert (built / name).read_bytes() == (zk4907 / name).read_bytes()


def test_another_base_is_calibrated_anew(tiny_model: Path, tmp_path: Path) -> None:
    other = build_tiny_model(tmp_path / "other", seed=1)
    for folder in (tiny_model, other):
        CanaryBuilder(folder, cache_folder=tmp_path / "cache")
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_a_folder_that_is_no_llama_is_named(tmp_path: Path) -> None:
    folder = build_tiny_model(tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.0.self_attn.q_proj.weight"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(KeyError, match=r"no tensor model\.layers\.0\.self_attn\.q_proj\.weight"):
        CanaryBuilder(folder)


def test_the_command_prints_every_canary(tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert canary.main([str(tiny_model), str(tmp_path), "--count", "3", "--seed", "2"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [word for word, _, _ in lines] == ["canary"] * 3
    for _, marker, folder in lines:
        assert json.loads((Path(folder) / "canary.json").read_text())["marker"] == marker


def test_the_command_refuses_in_one_line(tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert canary.main([str(tiny_model), str(tmp_path), "--marker", "AA"]) == 1
    assert capsys.readouterr().err.startswith("no canary: marker 'AA' must have distinct tokens")
