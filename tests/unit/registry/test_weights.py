"""What is opened below a folder that weights may come from, and that nothing else ever is."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from services.registry.core.files.sources import PathSource, Prefixes
from services.registry.io import weights_files
from services.registry.io.inspected import Inspected
from services.registry.io.inspection import inspect
from services.registry.io.source_unavailable import SourceUnavailable
from services.registry.io.weights import WeightsSources
from services.registry.io.weights_files import CHUNK_BYTES
from shared.messages.adapters import Defect
from shared.store.file import FileStore
from shared.store.port import weights_key
from tests.support.adapter_files import Recipe, announcement, file_of, write_folder

FILE = file_of()


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    folder = tmp_path / "inbox"
    folder.mkdir()
    return folder


@pytest.fixture
def sources(tmp_path: Path, inbox: Path) -> WeightsSources:
    return sources_of(FileStore(tmp_path / "store"), str(inbox))


def sources_of(store: FileStore, *folders: str) -> WeightsSources:
    return WeightsSources(store, Inspected(), Prefixes(folders=folders), {})


async def opened(sources: WeightsSources, uri: str) -> tuple[bytes, bytes | None]:
    found = await sources.open(uri)
    assert not isinstance(found, Defect), found
    return b"".join([chunk async for chunk in found.chunks()]), found.config


async def refused(sources: WeightsSources, uri: str) -> str:
    found = await sources.open(uri)
    assert isinstance(found, Defect)
    return found.code


def open_below(folder: Path) -> list[str]:
    files = [os.readlink(one) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    return [file for file in files if file.startswith(str(folder))]


async def chunk(payload: bytes) -> AsyncIterator[bytes]:
    yield payload


async def test_a_folder_holds_weights_and_config(sources: WeightsSources, inbox: Path) -> None:
    announced = write_folder(inbox / "acme v1", FILE, announcement(FILE))
    payload, config = await opened(sources, announced.weights_uri)
    assert payload == FILE
    assert config == (inbox / "acme v1" / "adapter_config.json").read_bytes()


async def test_a_file_may_stand_without_a_config(sources: WeightsSources, inbox: Path) -> None:
    (inbox / "v1.safetensors").write_bytes(FILE)
    assert await opened(sources, (inbox / "v1.safetensors").as_uri()) == (FILE, None)


async def test_an_upload_is_found_where_verified_files_lie(sources: WeightsSources, tmp_path: Path) -> None:
    store, digest = FileStore(tmp_path / "store"), hashlib.sha256(FILE).hexdigest()
    assert await refused(sources, f"upload:{digest}") == "weights_missing"
    await store.put(weights_key(digest), chunk(FILE), digest)
    assert await opened(sources, f"upload:{digest}") == (FILE, None)


async def test_what_is_not_there_is_said_to_be_missing(sources: WeightsSources, inbox: Path) -> None:
    (inbox / "empty").mkdir()
    for name in ("none", "none.safetensors", "empty"):
        found = await sources.open((inbox / name).as_uri())
        assert isinstance(found, Defect)
        assert (found.code, found.message.endswith("does not exist.")) == ("weights_missing", True), name


async def test_a_path_that_can_name_nothing_is_missing_and_no_trouble(sources: WeightsSources, inbox: Path) -> None:
    """What counts as trouble is asked for again and again."""
    (inbox / "v1.safetensors").write_bytes(FILE)
    for name in ("v1.safetensors/x.safetensors", f"{'x' * 300}.safetensors"):
        assert await refused(sources, (inbox / name).as_uri()) == "weights_missing", name


async def test_c56_a_folder_with_nothing_but_a_pickle_is_refused(sources: WeightsSources, inbox: Path) -> None:
    (inbox / "v1").mkdir()
    (inbox / "v1" / "adapter_model.bin").write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    assert await refused(sources, (inbox / "v1").as_uri()) == "pickle_refused"


@pytest.mark.parametrize("place", ["outside", "inbox/v1"])
async def test_c54_a_link_is_refused_wherever_it_leads(
    sources: WeightsSources, inbox: Path, tmp_path: Path, place: str
) -> None:
    outside = tmp_path / place
    write_folder(outside, FILE, announcement(FILE))
    (inbox / "folder").symlink_to(outside)
    (inbox / "file.safetensors").symlink_to(outside / "adapter_model.safetensors")
    (inbox / "half").mkdir()
    (inbox / "half" / "adapter_model.safetensors").symlink_to(outside / "adapter_model.safetensors")
    (inbox / "config").mkdir()
    (inbox / "config" / "adapter_model.safetensors").write_bytes(FILE)
    (inbox / "config" / "adapter_config.json").symlink_to("/etc/passwd")
    (inbox / "round.safetensors").symlink_to(inbox / "round.safetensors")
    (inbox / "nowhere.safetensors").symlink_to(tmp_path / "nothing")
    links = {
        "folder": "folder", "folder/adapter_model.safetensors": "folder", "file.safetensors": "file.safetensors",
        "half": "adapter_model.safetensors", "config": "adapter_config.json", "round.safetensors": "round.safetensors",
        "nowhere.safetensors": "nowhere.safetensors",
    }  # fmt: skip
    for name, link in links.items():
        found = await sources.open((inbox / name).as_uri())
        assert isinstance(found, Defect)
        assert (found.code, found.found) == ("symlink_refused", link), name


async def test_the_folder_of_the_settings_may_be_a_link_itself(tmp_path: Path, inbox: Path) -> None:
    announced = write_folder(inbox / "v1", FILE, announcement(FILE))
    (tmp_path / "mounted").symlink_to(inbox)
    mounted = sources_of(FileStore(tmp_path / "store"), f"{tmp_path}/mounted")
    uri = announced.weights_uri.replace("/inbox/", "/mounted/")
    assert (await opened(mounted, uri))[0] == FILE


async def test_a_pipe_is_no_file(sources: WeightsSources, inbox: Path) -> None:
    os.mkfifo(inbox / "x.safetensors")
    assert await refused(sources, (inbox / "x.safetensors").as_uri()) == "weights_missing"


async def test_a_file_that_vanishes_after_the_look_says_nothing_of_the_adapter(
    sources: WeightsSources, inbox: Path
) -> None:
    announced = write_folder(inbox / "v1", FILE, announcement(FILE))
    found = await sources.open(announced.weights_uri)
    assert not isinstance(found, Defect)
    (inbox / "v1" / "adapter_model.safetensors").unlink()
    with pytest.raises(SourceUnavailable):
        await anext(found.chunks())


async def test_c54_a_link_put_there_after_the_look_is_not_followed(sources: WeightsSources, inbox: Path) -> None:
    announced = write_folder(inbox / "v1", FILE, announcement(FILE))
    found = await sources.open(announced.weights_uri)
    assert not isinstance(found, Defect)
    (inbox / "v1" / "adapter_model.safetensors").unlink()
    (inbox / "v1" / "adapter_model.safetensors").symlink_to("/etc/passwd")
    with pytest.raises(SourceUnavailable):
        await anext(found.chunks())


async def test_c54_a_folder_that_became_a_link_after_the_look_is_not_entered(
    sources: WeightsSources, inbox: Path, tmp_path: Path
) -> None:
    announced = write_folder(inbox / "v1", FILE, announcement(FILE))
    found = await sources.open(announced.weights_uri)
    assert not isinstance(found, Defect)
    (inbox / "v1").rename(tmp_path / "elsewhere")
    (inbox / "v1").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SourceUnavailable):
        await anext(found.chunks())


async def test_c54_a_folder_that_became_a_link_after_the_look_is_not_listed(
    sources: WeightsSources, inbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.bin").touch()
    (inbox / "v1").mkdir()
    look = weights_files._mode

    def looked(source: PathSource) -> int | None:
        mode = look(source)
        if source.steps == ("v1", "adapter_model.safetensors"):
            (inbox / "v1").rmdir()
            (inbox / "v1").symlink_to(outside)
        return mode

    monkeypatch.setattr(weights_files, "_mode", looked)
    with pytest.raises(SourceUnavailable):
        await sources.open((inbox / "v1").as_uri())


async def test_a_pipe_put_there_after_the_look_is_not_waited_for(sources: WeightsSources, inbox: Path) -> None:
    announced = write_folder(inbox / "v1", FILE, announcement(FILE))
    found = await sources.open(announced.weights_uri)
    assert not isinstance(found, Defect)
    (inbox / "v1" / "adapter_model.safetensors").unlink()
    os.mkfifo(inbox / "v1" / "adapter_model.safetensors")
    with pytest.raises(SourceUnavailable, match="no regular file"):
        await anext(found.chunks())


@pytest.mark.parametrize("place", ["store", "path"])
async def test_what_is_given_up_in_the_middle_is_closed_at_once(
    sources: WeightsSources, inbox: Path, tmp_path: Path, place: str
) -> None:
    (inbox / "v1.safetensors").write_bytes(FILE)
    digest = hashlib.sha256(FILE).hexdigest()
    await FileStore(tmp_path / "store").put(weights_key(digest), chunk(FILE), digest)
    uri = f"upload:{digest}" if place != "path" else (inbox / "v1.safetensors").as_uri()
    weights = await sources.open(uri)
    assert not isinstance(weights, Defect)
    assert (await inspect(weights, len(FILE) - 1)).header is None
    assert open_below(tmp_path) == []


async def test_a_large_file_is_read_in_chunks(sources: WeightsSources, inbox: Path) -> None:
    file = file_of(Recipe(), big=np.zeros(3 << 19, np.float16))
    (inbox / "big.safetensors").write_bytes(file)
    found = await sources.open((inbox / "big.safetensors").as_uri())
    assert not isinstance(found, Defect)
    sizes = [len(chunk) async for chunk in found.chunks()]
    assert sum(sizes) == len(file)
    assert max(sizes) <= CHUNK_BYTES
