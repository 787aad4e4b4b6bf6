"""From folders and lists to announcements; whether they are any good is for the registry to say."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shared.messages.adapters import AdapterRegistered
from shared.pipeline.batch import AnnouncedWish, FolderWish
from shared.pipeline.folder import Identity, announcement, read_folder
from shared.pipeline.outcome import UnclearFolder
from shared.pipeline.wishes import UnclearList, in_folders, in_lines

CONFIG = {"r": 8, "lora_alpha": 16, "target_modules": ["v_proj", "q_proj"]}
WEIGHTS = b"weights"
WHO = Identity(tenant_id="acme", base_model_hash="b" * 64)


def written(path: Path, **changes: Any) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", **CONFIG, **changes}))
    (path / "adapter_model.safetensors").write_bytes(WEIGHTS)
    return path


def test_a_folder_as_peft_saves_it_becomes_an_announcement(tmp_path: Path) -> None:
    path = written(tmp_path / "support", use_rslora=True, rank_pattern={"q_proj": 4}, alpha_pattern=None)
    made = announcement(read_folder(path), WHO, "upload:x")
    digest = hashlib.sha256(WEIGHTS).hexdigest()
    assert (made.adapter_id, made.version) == (f"acme-support-{digest[:8]}", digest[:8])
    assert (made.checksum, made.weights_uri) == (digest, "upload:x")
    assert (made.rank, made.alpha, made.target_modules) == (8, 16.0, ("q_proj", "v_proj"))
    assert (made.use_rslora, made.rank_pattern, made.alpha_pattern) == (True, {"q_proj": 4}, {})


@pytest.mark.parametrize("said", ["all-linear", r".*\.(q|v)_proj"])
def test_an_expression_is_passed_on_as_it_stands(tmp_path: Path, said: str) -> None:
    assert announcement(read_folder(written(tmp_path, target_modules=said)), WHO, "").target_modules == said


def test_the_callers_words_are_the_announcements(tmp_path: Path) -> None:
    said = {"adapter_id": "v9", "version": "nine", "alias": "acme/x", "predecessor_id": "v8", "dataset_uri": "s3://d/9"}
    made = announcement(read_folder(written(tmp_path)), msgspec.structs.replace(WHO, **said), "")
    assert {name: getattr(made, name) for name in said} == said
    assert set(Identity.__struct_fields__) < set(AdapterRegistered.__struct_fields__)


@pytest.mark.parametrize("name", ["r", "lora_alpha", "target_modules"])
def test_a_field_of_another_kind_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnclearFolder, match=name):
        read_folder(written(tmp_path, **{name: None}))


@pytest.mark.parametrize("missing", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_file_that_is_missing_is_named(tmp_path: Path, missing: str) -> None:
    (written(tmp_path) / missing).unlink()
    with pytest.raises(UnclearFolder, match=missing):
        read_folder(tmp_path)


def test_a_path_is_an_adapter_or_a_folder_of_them(tmp_path: Path) -> None:
    for name in ("many/b", "many/a", "one"):
        written(tmp_path / name)
    found = in_folders([tmp_path / "many", tmp_path / "one"], WHO)
    assert [wish.source for wish in found] == [str(tmp_path / name) for name in ("many/a", "many/b", "one")]
    with pytest.raises(UnclearFolder, match="is no PEFT folder and holds none"):
        in_folders([tmp_path / "elsewhere"], WHO)


def test_a_line_names_a_folder_or_is_an_announcement(tmp_path: Path) -> None:
    announced = announcement(read_folder(written(tmp_path / "a")), WHO, "file:///inbox/a")
    text = b'{"folder": "a", "adapter_id": "v1", "tenant_id": "globex"}\n\n' + msgspec.json.encode(announced)
    folder, whole = in_lines(text, tmp_path, WHO)
    expected = msgspec.structs.replace(WHO, adapter_id="v1", tenant_id="globex")
    assert folder == FolderWish(folder=tmp_path / "a", identity=expected)
    assert whole == AnnouncedWish(announced=announced)


@pytest.mark.parametrize(
    "line", [b"{", b"[]", b"\xff", b'{"folder": 5}', b'{"folder": "a", "tenat": "x"}', b'{"a": 1}']
)
def test_a_line_that_is_neither_is_named_by_its_number(tmp_path: Path, line: bytes) -> None:
    with pytest.raises(UnclearList, match=r"^Line 3 is neither a folder nor an announcement: [^\n]+\.$"):
        in_lines(b'{"folder": "a"}\n\n' + line, tmp_path, WHO)
