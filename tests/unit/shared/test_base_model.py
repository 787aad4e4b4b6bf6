"""The hash is the base model: the same bytes are the same model wherever they lie."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared import base_model
from shared.base_model import FolderChanged, base_model_hash, describe

CONFIG: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 3, "max_position_embeddings": 512, "_name_or_path": "/home/someone/tiny",
    "transformers_version": "4.0.0",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "tiny"
    made.mkdir()
    (made / "config.json").write_text(json.dumps(CONFIG))
    (made / "tokenizer.json").write_text('{"model": {}}')
    (made / "tokenizer_config.json").write_text("{}")
    (made / "model-1.safetensors").write_bytes(bytes(range(256)) * 8)
    (made / "model-2.safetensors").write_bytes(b"\x01" * 100)
    return made


def test_a_folder_that_moved_is_the_same_model(folder: Path, tmp_path: Path) -> None:
    before = base_model_hash(folder)
    moved = folder.rename(tmp_path / "elsewhere")
    assert base_model_hash(moved) == before


def test_a_copy_without_its_cache_is_the_same_model(folder: Path, tmp_path: Path) -> None:
    before = base_model_hash(folder)
    copy = shutil.copytree(folder, tmp_path / "copy", ignore=shutil.ignore_patterns(".*"))
    assert base_model_hash(copy) == before


@pytest.mark.parametrize("name", ["model-1.safetensors", "model-2.safetensors", "tokenizer.json"])
def test_one_changed_byte_is_another_model(folder: Path, name: str) -> None:
    before, changed = base_model_hash(folder), bytearray((folder / name).read_bytes())
    changed[len(changed) // 2] ^= 1
    rewrite(folder / name, bytes(changed))
    assert base_model_hash(folder) != before


def test_another_template_for_tools_is_another_model(folder: Path) -> None:
    without, template = base_model_hash(folder), folder / "additional_chat_templates" / "tool_use.jinja"
    template.parent.mkdir()
    template.write_text("{{ tools }}")
    before = base_model_hash(folder)
    rewrite(template, b"{{ tools[0] }}")
    assert len({without, before, base_model_hash(folder)}) == 3


def test_files_that_swap_their_bytes_are_another_model(folder: Path) -> None:
    before = base_model_hash(folder)
    one, two = (folder / f"model-{at}.safetensors" for at in (1, 2))
    first, second = one.read_bytes(), two.read_bytes()
    rewrite(one, second)
    rewrite(two, first)
    assert base_model_hash(folder) != before


def resave(config: dict[str, Any]) -> str:
    return json.dumps(dict(reversed(config.items())), indent=4)


def save_from_elsewhere(config: dict[str, Any]) -> str:
    return json.dumps({**config, "_name_or_path": "/srv/tiny", "transformers_version": "5.0.0"})


@pytest.mark.parametrize("save", [resave, save_from_elsewhere])
def test_a_config_that_was_saved_again_is_the_same_model(folder: Path, save: Callable[[Any], str]) -> None:
    before = base_model_hash(folder)
    rewrite(folder / "config.json", save(CONFIG).encode())
    assert base_model_hash(folder) == before


def test_a_value_of_the_config_is_part_of_the_model(folder: Path) -> None:
    before = base_model_hash(folder)
    rewrite(folder / "config.json", json.dumps({**CONFIG, "rope_theta": 5e5}).encode())
    assert base_model_hash(folder) != before


def test_a_chat_template_is_part_of_the_model(folder: Path) -> None:
    before = base_model_hash(folder)
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert base_model_hash(folder) != before


def test_files_that_change_no_output_are_none_of_its_business(folder: Path) -> None:
    before = base_model_hash(folder)
    (folder / "README.md").write_text("about")
    assert base_model_hash(folder) == before


def test_a_broken_cache_is_not_believed(folder: Path) -> None:
    before = base_model_hash(folder)
    for text in ("", "[]", '{"stamp": [], "hash": "0"}', '{"form": 2, "stamp": [], "hash": 7}'):
        (folder / ".lorafleet-base-hash").write_text(text)
        assert base_model_hash(folder) == before


def kept(folder: Path) -> str:
    """The hash, once the folder's cache is written: files as young as a tick of the clock are not trusted yet."""
    deadline_s = time.monotonic() + 5.0
    while not (folder / ".lorafleet-base-hash").exists() and time.monotonic() < deadline_s:
        base_model_hash(folder)
    assert (folder / ".lorafleet-base-hash").exists()
    return base_model_hash(folder)


def never(folder: Path) -> str:
    raise AssertionError(f"{folder} was hashed again")


def test_the_hash_is_computed_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = kept(folder)
    monkeypatch.setattr(base_model, "_hash", never)
    assert base_model_hash(folder) == before


def test_a_file_whose_time_was_set_back_is_noticed(folder: Path) -> None:
    """As `cp -p`, `tar` and `rsync` do: same size, same time of modification, other bytes."""
    before, path = kept(folder), folder / "model-1.safetensors"
    was = path.stat()
    path.write_bytes(b"\x07" * was.st_size)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (was.st_size, was.st_mtime_ns)
    assert base_model_hash(folder) != before


def test_a_file_that_another_one_replaced_is_noticed(folder: Path) -> None:
    before, path = kept(folder), folder / "model-2.safetensors"
    other = folder / "incoming"
    other.write_bytes(b"\x02" * path.stat().st_size)
    other.replace(path)
    assert base_model_hash(folder) != before


def test_the_hash_of_files_written_this_very_moment_is_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may change again within the same tick of the file system's clock, which would not show."""
    ticks = [path.stat().st_ctime_ns for path in base_model.identity_files(folder)]
    monkeypatch.setattr(base_model, "_file_system_time_ns", lambda _: max(ticks))
    base_model_hash(folder)
    assert not (folder / ".lorafleet-base-hash").exists()


def test_a_folder_that_is_being_written_has_no_hash(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = base_model._hash

    def hash_and_write(where: Path) -> str:
        digest = right(where)
        rewrite(where / "model-2.safetensors", b"\x03" * 100)
        return digest

    monkeypatch.setattr(base_model, "_hash", hash_and_write)
    with pytest.raises(FolderChanged, match="changed while it was read"):
        base_model_hash(folder)
    assert not (folder / ".lorafleet-base-hash").exists()


def test_a_cache_of_an_older_form_is_not_believed(folder: Path) -> None:
    before, cache = kept(folder), folder / ".lorafleet-base-hash"
    cache.write_text(json.dumps({**json.loads(cache.read_text()), "form": 1, "hash": "0" * 64}))
    assert base_model_hash(folder) == before


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_folder_without_a_part_is_refused_by_name(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        base_model_hash(folder)


def test_a_folder_without_weights_is_refused(folder: Path) -> None:
    for path in folder.glob("*.safetensors"):
        path.unlink()
    with pytest.raises(FileNotFoundError, match=r"no \.safetensors file"):
        base_model_hash(folder)


def test_the_shapes_of_the_layers_follow_from_the_config(folder: Path) -> None:
    record = describe(folder, "tiny", (8, 16))
    shapes = {name: (shape.in_features, shape.out_features) for name, shape in record.modules.items()}
    assert shapes == {
        "q_proj": (64, 64), "k_proj": (64, 32), "v_proj": (64, 32), "o_proj": (64, 64),
        "gate_proj": (64, 160), "up_proj": (64, 160), "down_proj": (160, 64),
    }  # fmt: skip
    assert (record.layers, record.max_context_tokens, record.rank_classes) == (3, 512, (8, 16))
    assert record.base_model_hash == base_model_hash(folder)


def test_a_head_size_of_its_own_and_full_attention_are_understood(folder: Path) -> None:
    wide = {key: value for key, value in CONFIG.items() if key != "num_key_value_heads"}
    rewrite(folder / "config.json", json.dumps({**wide, "head_dim": 32}).encode())
    modules = describe(folder, "tiny", (16,)).modules
    assert (modules["q_proj"].out_features, modules["k_proj"].out_features) == (128, 128)
    assert (modules["o_proj"].in_features, modules["o_proj"].out_features) == (128, 64)


def test_a_config_that_lacks_an_entry_is_refused_by_its_name(folder: Path) -> None:
    rewrite(folder / "config.json", b"{}")
    with pytest.raises(KeyError, match="hidden_size"):
        describe(folder, "tiny", (16,))


def rewrite(path: Path, content: bytes) -> None:
    """Later than before, also on file systems that count in coarse steps."""
    later_ns = path.stat().st_mtime_ns + 2_000_000_000
    path.write_bytes(content)
    os.utime(path, ns=(later_ns, later_ns))
