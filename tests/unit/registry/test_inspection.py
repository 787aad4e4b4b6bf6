"""What is learnt of a file while it streams by, whatever the chunks."""

from __future__ import annotations

import hashlib
import tracemalloc
from collections.abc import AsyncIterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.registry.io.inspection import Inspection, inspect
from tests.support.adapter_files import crafted, file_of

FILE = file_of()


def inspected(file: bytes, size: int) -> Inspection:
    reading = Inspection()
    for at in range(0, len(file), size):
        reading.feed(file[at : at + size])
    return reading


@pytest.mark.parametrize("size", [1, 3, 7, 100, 1 << 20])
def test_a_file_reads_the_same_in_chunks_of_any_size(size: int) -> None:
    assert inspected(FILE, size).facts() == inspected(FILE, len(FILE)).facts()
    facts = inspected(FILE, size).facts()
    assert (facts.digest, facts.size_bytes, facts.fault) == (hashlib.sha256(FILE).hexdigest(), len(FILE), None)


@pytest.mark.parametrize("size", [1, 3, 5, 1 << 20])
@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("F16", b"\x00\x7c"), ("F16", b"\x01\xfc"), ("BF16", b"\x80\x7f"), ("BF16", b"\xc0\xff"),
        ("F32", b"\x00\x00\x80\x7f"), ("F32", b"\x01\x00\x80\xff"),
    ],
)  # fmt: skip
def test_c63a_a_value_that_is_not_finite_is_found_wherever_chunks_end(dtype: str, value: bytes, size: int) -> None:
    width = len(value)
    tensors = {
        "before": {"dtype": dtype, "shape": [3], "data_offsets": [0, 3 * width]},
        "broken": {"dtype": dtype, "shape": [4], "data_offsets": [3 * width, 7 * width]},
        "after": {"dtype": dtype, "shape": [1], "data_offsets": [7 * width, 8 * width]},
    }
    file = crafted(tensors, bytes(3 * width) + bytes(2 * width) + value + bytes(width) + bytes(width))
    assert inspected(file, size).facts().not_finite == ("broken",)


@pytest.mark.parametrize("size", [1, 11, 1 << 20])
@pytest.mark.parametrize(
    ("dtype", "largest"), [("F16", b"\xff\x7b"), ("BF16", b"\x7f\x7f"), ("F32", b"\xff\xff\x7f\x7f")]
)
@pytest.mark.parametrize("sign", [0x00, 0x80])
def test_c63a_the_largest_finite_values_are_finite(dtype: str, largest: bytes, sign: int, size: int) -> None:
    value = largest[:-1] + bytes([largest[-1] | sign])
    tensors = {"a": {"dtype": dtype, "shape": [100], "data_offsets": [0, 100 * len(value)]}}
    assert inspected(crafted(tensors, 100 * value), size).facts().not_finite == ()


def test_whoever_does_not_hash_learns_all_but_the_digest() -> None:
    reading = Inspection(hashes=False)
    reading.feed(FILE)
    assert reading.facts() == msgspec.structs.replace(inspected(FILE, len(FILE)).facts(), digest="")


@given(st.integers(1, 64), st.binary(min_size=0, max_size=200))
def test_any_bytes_in_any_chunks_give_facts(size: int, noise: bytes) -> None:
    facts = inspected(noise, size).facts()
    assert facts.size_bytes == len(noise)
    assert (facts.fault is None) == (facts.header is not None)


def test_c51_a_file_that_ends_early_has_a_fault_and_keeps_its_header() -> None:
    facts = inspected(FILE[:-1], 64).facts()
    assert facts.header is not None
    assert "cut short" in (facts.fault or "")


def test_memory_does_not_grow_with_the_file() -> None:
    chunk, chunks = bytes(1 << 20), 64
    size = chunks * len(chunk)
    head = crafted({"a": {"dtype": "F16", "shape": [size // 2], "data_offsets": [0, size]}})
    reading = Inspection()
    tracemalloc.start()
    reading.feed(head)
    for _ in range(chunks):
        reading.feed(chunk)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert reading.facts().fault is None
    assert peak_bytes < 6 << 20


class _Endless:
    config = None

    def __init__(self) -> None:
        self.read_bytes = 0

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            self.read_bytes += 1 << 20
            yield bytes(1 << 20)


async def test_reading_ends_at_the_size_limit() -> None:
    endless = _Endless()
    facts = await inspect(endless, 3 << 20)
    assert (facts.size_bytes, endless.read_bytes, facts.digest) == (4 << 20, 4 << 20, "")
