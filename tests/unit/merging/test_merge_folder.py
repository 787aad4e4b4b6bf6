"""The folder that a merge writes: what is in it, what is refused, and what a failure leaves."""

from __future__ import annotations

import hashlib
import json
import shutil
import weakref
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from services.replica_worker.engine.port import AdapterSpec
from shared.base_model import base_model_hash
from shared.merging import shard
from shared.merging.folder import leftovers, merge_folder
from shared.merging.pairs import MergeRefused
from shared.merging.terms import scale_of
from tests.support.random_adapter import RandomAdapter, write_adapter

Q0 = "model.layers.0.self_attn.q_proj"


@pytest.fixture
def adapter(tiny_folder: Path, tmp_path: Path) -> tuple[Path, AdapterSpec]:
    return write_adapter(tmp_path, RandomAdapter(seed=1), base_model_hash(tiny_folder))


def test_a_merge_is_the_sum_in_float32_cast_once_and_touches_nothing_else(
    tiny_folder: Path, tmp_path: Path, adapter: tuple[Path, AdapterSpec]
) -> None:
    path, spec = adapter
    merge_folder(tiny_folder, path, spec, tmp_path / "out")
    before, after, lora = (
        load_file(each) for each in (tiny_folder / "model.safetensors", tmp_path / "out" / "model.safetensors", path)
    )
    assert before.keys() == after.keys()
    for name, weight in before.items():
        module = name.removesuffix(".weight")
        a, b = (lora.get(f"base_model.model.{module}.lora_{side}.weight") for side in "AB")
        if a is None or b is None:
            assert after[name].equal(weight), name
        else:
            expected = (weight.double() + scale_of(spec, module) * (b.double() @ a.double())).float()
            torch.testing.assert_close(after[name].float(), expected, atol=1e-6, rtol=2**-8)
            assert after[name].dtype == torch.bfloat16


def test_the_folder_is_a_whole_model_and_says_what_it_is(
    tiny_folder: Path, tmp_path: Path, adapter: tuple[Path, AdapterSpec]
) -> None:
    path, spec = adapter
    out = tmp_path / "deep" / "out"
    merge_folder(tiny_folder, path, spec, out)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (out / name).read_bytes() == (tiny_folder / name).read_bytes()
    assert not (out / "golden.json").exists(), "the base's golden answer is not this model's"
    told = json.loads((out / "merged.json").read_text())
    assert told["base_model_hash"] == base_model_hash(tiny_folder) != base_model_hash(out)
    assert (told["adapter_id"], told["digest"]) == (spec.adapter_id, hashlib.sha256(path.read_bytes()).hexdigest())
    assert told["scales"][Q0] == 2.0
    assert told["dtypes"] == {"BF16": 14}


def test_merged_tensors_can_be_cast_to_what_an_engine_computes_in(
    tiny_folder: Path, tmp_path: Path, adapter: tuple[Path, AdapterSpec]
) -> None:
    path, spec = adapter
    merged = merge_folder(tiny_folder, path, spec, tmp_path / "out", "float32")
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    assert merged.dtypes == {"F32": 14}
    assert (tensors[f"{Q0}.weight"].dtype, tensors["lm_head.weight"].dtype) == (torch.float32, torch.bfloat16)


def test_shards_stay_shards(tiny_folder: Path, tmp_path: Path, adapter: tuple[Path, AdapterSpec]) -> None:
    path, spec = adapter
    base = shutil.copytree(tiny_folder, tmp_path / "base")
    tensors = load_file(base / "model.safetensors")
    (base / "model.safetensors").unlink()
    names = sorted(tensors)
    for at, part in enumerate((names[::2], names[1::2])):
        save_file({name: tensors[name] for name in part}, base / f"model-{at}.safetensors", metadata={"format": "pt"})
    spec = msgspec.structs.replace(spec, base_model_hash="")
    merge_folder(tiny_folder, path, spec, tmp_path / "whole")
    merge_folder(base, path, spec, tmp_path / "sharded")
    whole = load_file(tmp_path / "whole" / "model.safetensors")
    parts = {
        **load_file(tmp_path / "sharded/model-0.safetensors"),
        **load_file(tmp_path / "sharded/model-1.safetensors"),
    }
    assert parts.keys() == whole.keys()
    assert all(parts[name].equal(tensor) for name, tensor in whole.items())


def test_one_tensor_of_the_base_is_in_memory_at_a_time(
    tiny_folder: Path, tmp_path: Path, adapter: tuple[Path, AdapterSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[weakref.ref[torch.Tensor]] = []
    most_alive = 0
    write = shard.write_shard

    def watched(source: Path, target: Path, entries: list[shard.Entry], change: shard.Change) -> None:
        def note(name: str, tensor: torch.Tensor) -> torch.Tensor:
            nonlocal most_alive
            most_alive = max(most_alive, sum(ref() is not None for ref in seen))
            changed = change(name, tensor)
            seen.extend((weakref.ref(tensor), weakref.ref(changed)))
            return changed

        write(source, target, entries, note)

    monkeypatch.setattr("shared.merging.folder.write_shard", watched)
    path, spec = adapter
    merge_folder(tiny_folder, path, spec, tmp_path / "out")
    assert len(seen) > 30
    assert most_alive == 0, "an earlier tensor is still held when the next one comes"


def test_what_exists_is_not_overwritten(tiny_folder: Path, tmp_path: Path, adapter: tuple[Path, AdapterSpec]) -> None:
    path, spec = adapter
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_text("precious")
    with pytest.raises(MergeRefused, match="nothing is overwritten"):
        merge_folder(tiny_folder, path, spec, out)
    assert [each.name for each in out.iterdir()] == ["mine"]


def test_a_merge_that_breaks_off_leaves_nothing(
    tiny_folder: Path, tmp_path: Path, adapter: tuple[Path, AdapterSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    path, spec = adapter
    monkeypatch.setattr("shared.merging.folder.shutil.copyfile", full)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(MergeRefused, match=r"out cannot be written: .*No space left"):
        merge_folder(tiny_folder, path, spec, tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == before


def test_what_a_killed_merge_left_is_found_and_nothing_else(
    tiny_folder: Path, tmp_path: Path, adapter: tuple[Path, AdapterSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, spec = adapter
    (tmp_path / ".other.1").mkdir()
    monkeypatch.setattr("shared.merging.folder.shutil.rmtree", lambda *_, **__: None)  # as if there was no time for it
    monkeypatch.setattr("shared.merging.folder.shutil.copyfile", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        merge_folder(tiny_folder, path, spec, tmp_path / "out")
    [left] = leftovers(tmp_path / "out")
    assert (left / "model.safetensors").exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8], ids=str)
def test_a_quantised_base_is_refused(
    tiny_folder: Path, tmp_path: Path, adapter: tuple[Path, AdapterSpec], dtype: torch.dtype
) -> None:
    """Its numbers are not its weights: a sum with them would be finite, and wrong."""
    path, spec = adapter
    base = shutil.copytree(tiny_folder, tmp_path / "base")
    tensors = load_file(base / "model.safetensors")
    save_file({**tensors, f"{Q0}.weight": tensors[f"{Q0}.weight"].to(dtype)}, base / "model.safetensors")
    with pytest.raises(MergeRefused, match=rf"{Q0} is (F8_E4M3|I8) in the base model; F32, F16, BF16 are merged"):
        merge_folder(base, path, msgspec.structs.replace(spec, base_model_hash=""), tmp_path / "out")
    assert not (tmp_path / "out").exists()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "another base": ({"base_model_hash": "f" * 64}, "belongs to base model"),
    "other bytes": ({"digest": "f" * 64}, "has the digest"),
    "another rank": ({"rank": 4}, "its rank is 4"),
    "a target too few": ({"target_modules": ("q_proj",)}, "not among the target modules"),
    "a pattern that is no name": ({"alpha_pattern": {r"layers\.0\..*": 3.0}}, "not a plain module name"),
}


@pytest.mark.parametrize(("changes", "reason"), WRONG.values(), ids=WRONG.keys())
def test_a_description_that_does_not_fit_is_refused(
    tiny_folder: Path, tmp_path: Path, adapter: tuple[Path, AdapterSpec], changes: dict[str, Any], reason: str
) -> None:
    path, spec = adapter
    with pytest.raises(MergeRefused, match=reason):
        merge_folder(tiny_folder, path, msgspec.structs.replace(spec, **changes), tmp_path / "out")
    assert not (tmp_path / "out").exists()


ODD: dict[str, tuple[str, torch.Tensor, str]] = {
    "an embedding": ("base_model.model.model.embed_tokens.lora_embedding_A", torch.zeros(8, 4), "is not a LoRA tensor"),
    "dora": (f"base_model.model.{Q0}.lora_magnitude_vector", torch.zeros(128), "is not a LoRA tensor"),
    "the head": ("base_model.model.lm_head.lora_A.weight", torch.zeros(8, 128), "is not a LoRA tensor"),
    "a layer too many": (f"base_model.model.{Q0}.lora_A.weight".replace(".0.", ".7."), torch.zeros(8, 128), "missing"),
    "nan": (f"base_model.model.{Q0}.lora_A.weight", torch.full((8, 128), float("nan")), "must be finite"),
    "another shape": (f"base_model.model.{Q0}.lora_A.weight", torch.zeros(8, 64), "the adapter's is"),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_a_file_that_cannot_be_merged_whole_is_refused(
    tiny_folder: Path, tmp_path: Path, adapter: tuple[Path, AdapterSpec], odd: tuple[str, torch.Tensor, str]
) -> None:
    (path, spec), (name, tensor, reason) = adapter, odd
    save_file({**load_file(path), name: tensor}, path)
    with pytest.raises(MergeRefused, match=reason):
        merge_folder(tiny_folder, path, msgspec.structs.replace(spec, digest=""), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_sum_that_overflows_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    path, spec = write_adapter(tmp_path, RandomAdapter(seed=2, std=10.0, alpha=2.4e39), base_model_hash(tiny_folder))
    with pytest.raises(MergeRefused, match="is not finite"):
        merge_folder(tiny_folder, path, spec, tmp_path / "out")
    assert not (tmp_path / "out").exists()
