"""Many adapters from one: each with bytes, a checksum and an announcement of its own."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from loadtest.registrations_made import CONFIG, MOST, WEIGHTS, Mould

FIRST = bytes(range(256)) * 5000


@pytest.fixture
def mould(tmp_path: Path) -> Mould:
    first = tmp_path / "first"
    first.mkdir()
    (first / CONFIG).write_text('{"r": 4, "lora_alpha": 8, "target_modules": ["q_proj"]}')
    (first / WEIGHTS).write_bytes(FIRST)
    return Mould(first)


def test_every_adapter_differs_in_its_last_value_alone(mould: Mould, tmp_path: Path) -> None:
    files = [(folder / WEIGHTS).read_bytes() for folder in mould.fill(tmp_path / "made", range(3))]
    assert len(set(files)) == 3
    assert {file[:-2] for file in files} == {FIRST[:-2]}
    assert mould.size_bytes == len(FIRST)


def test_a_file_has_the_checksum_that_is_told_of_it(mould: Mould, tmp_path: Path) -> None:
    [folder] = mould.fill(tmp_path / "made", range(300, 301))
    digest, chunks = mould.file(300)
    assert hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest() == digest
    assert hashlib.sha256(b"".join(chunks())).hexdigest() == digest
    [line] = mould.announcements(tmp_path / "made", range(300, 301), {"tenant_id": "t"}).splitlines()
    told = msgspec.json.decode(line)
    assert (told["checksum"], told["weights_uri"], told["rank"]) == (digest, folder.as_uri(), 4)


def test_no_last_value_is_infinite_or_none(mould: Mould) -> None:
    """Of bfloat16: all of its exponent bits set."""
    _, chunks = mould.file(MOST - 1)
    assert int.from_bytes(b"".join(chunks())[-2:], "little") & 0x7F80 != 0x7F80
