"""A header is read without trusting it: what is wrong is named, and nothing else ever comes out."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.registry.core.files.safetensors_header import (
    LARGEST_HEADER_BYTES,
    Header,
    HeaderError,
    check_complete,
    parse_header,
)
from tests.support.adapter_files import Recipe as Recipe
from tests.support.adapter_files import crafted, file_of, tensors_of

GOOD = file_of()


def read(file: bytes) -> Header:
    """As the registry does with a file that is no longer than one chunk."""
    header = parse_header(file)
    check_complete(header, len(file))
    return header


def entry(begin: int, end: int, shape: list[int] | None = None, dtype: str = "F16") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [(end - begin) // 2] if shape is None else shape, "data_offsets": [begin, end]}


def fault(file: bytes) -> str:
    with pytest.raises(HeaderError) as refused:
        read(file)
    return str(refused.value)


def test_a_file_that_another_library_wrote_is_read() -> None:
    header = read(GOOD)
    assert {tensor.name: tensor.shape for tensor in header.tensors} == {
        name: array.shape for name, array in tensors_of(Recipe()).items()
    }
    assert {tensor.dtype for tensor in header.tensors} == {"F16"}
    for tensor in header.tensors:
        assert GOOD[tensor.begin : tensor.end] == tensors_of(Recipe())[tensor.name].tobytes()


def test_c51_cut_at_0() -> None:
    assert "0 bytes long, too short" in fault(b"")


def test_c51_cut_within_the_length() -> None:
    assert "7 bytes long, too short" in fault(GOOD[:7])


def test_c51_cut_at_8_bytes() -> None:
    assert "but the file has 0 after its length" in fault(GOOD[:8])


def test_c51_cut_within_the_header() -> None:
    assert "but the file has 42 after its length" in fault(GOOD[:50])


def test_c51_cut_at_half() -> None:
    assert "cut short" in fault(GOOD[: len(GOOD) // 2 + 400])


def test_c51_the_last_byte_is_missing() -> None:
    assert f"cut short: {len(GOOD) - 1} bytes of the {len(GOOD)}" in fault(GOOD[:-1])


def test_c51_bytes_behind_the_last_tensor() -> None:
    assert "ends with 3 bytes that its header does not describe" in fault(GOOD + b"abc")


@pytest.mark.parametrize("claimed", [LARGEST_HEADER_BYTES + 1, 1 << 40, (1 << 64) - 1])
def test_c51_a_header_that_claims_too_much_is_refused_before_it_is_read(claimed: int) -> None:
    assert f"claims {claimed} bytes, more than" in fault(crafted({}, claimed=claimed))


@pytest.mark.parametrize("claimed", [0, 1, 40])
def test_c51_a_header_length_that_lies_is_refused(claimed: int) -> None:
    assert "not valid JSON" in fault(crafted({"a": entry(0, 4)}, b"1234", claimed=claimed))


def test_c51_a_header_length_that_reaches_into_the_tensors_is_refused() -> None:
    text = json.dumps({"a": entry(0, 4)}).encode()
    assert "not valid JSON" in fault(crafted(text, b"1234", claimed=len(text) + 2))


def test_c51_overlapping_offsets() -> None:
    assert "'b' overlaps" in fault(crafted({"a": entry(0, 8), "b": entry(4, 12)}, bytes(12)))


def test_c51_the_same_bytes_twice() -> None:
    assert "overlaps" in fault(crafted({"a": entry(0, 8), "b": entry(0, 8)}, bytes(8)))


def test_c51_a_gap_between_tensors() -> None:
    assert "a gap of 2 bytes before tensor 'b'" in fault(crafted({"a": entry(0, 4), "b": entry(6, 8)}, bytes(8)))


def test_c51_a_gap_before_the_first_tensor() -> None:
    assert "a gap of 2 bytes before tensor 'a'" in fault(crafted({"a": entry(2, 4)}, bytes(4)))


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        (b"[]", "not a JSON object"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe{}", "not valid JSON"),
        (b"[" * 200_000, "not valid JSON"),
        (b'{"a": 1, "a": 2}', "twice"),
        ({"a": 5}, "needs dtype, shape and data_offsets"),
        ({"a": {"dtype": "F16", "shape": [1]}}, "needs dtype, shape and data_offsets"),
        ({"a": {**entry(0, 2), "more": 1}}, "and nothing else"),
        ({"a": entry(0, 2, dtype="F12")}, "unknown dtype 'F12'"),
        ({"a": {**entry(0, 2), "dtype": ["F16"]}}, "unknown dtype"),
        ({"a": {**entry(0, 2), "shape": [-1]}}, "no list of sizes"),
        ({"a": {**entry(0, 2), "shape": [True]}}, "no list of sizes"),
        ({"a": {**entry(0, 2), "shape": [1.0]}}, "no list of sizes"),
        ({"a": {**entry(0, 2), "shape": "1"}}, "no list of sizes"),
        ({"a": {**entry(0, 2), "shape": [1] * 9}}, "no list of sizes"),
        ({"a": {**entry(0, 2), "shape": [1 << 60]}}, "no list of sizes"),
        ({"a": {**entry(0, 2), "data_offsets": [2, 0]}}, "no begin and end"),
        ({"a": {**entry(0, 2), "data_offsets": [0, 1, 2]}}, "no begin and end"),
        ({"a": {**entry(0, 2), "data_offsets": [-2, 0]}}, "no begin and end"),
        ({"a": entry(0, 2, shape=[3])}, "needs 6 bytes for its shape but its data_offsets give 2"),
        ({"__metadata__": 5}, "__metadata__ is not a map of texts"),
        ({"__metadata__": {"a": 5}}, "__metadata__ is not a map of texts"),
    ],
)
def test_c51_a_malformed_header_is_named(header: Any, sentence: str) -> None:
    assert sentence in fault(crafted(header, bytes(2)))


def test_a_file_without_tensors_is_whole() -> None:
    assert read(crafted({})).tensors == ()


@given(st.integers(min_value=0, max_value=len(GOOD) - 1))
def test_c51_no_truncation_is_ever_taken_for_the_file(length: int) -> None:
    with pytest.raises(HeaderError):
        read(GOOD[:length])


@given(st.binary(max_size=300))
def test_any_bytes_give_a_header_or_its_own_error(noise: bytes) -> None:
    for file in (noise, crafted(noise), crafted(noise, noise)):
        with suppress(HeaderError):
            read(file)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_ENTRY = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F16", "F32", "I8"]) | _JSON,
        "shape": st.lists(st.integers(-1, 3), max_size=3) | _JSON,
        "data_offsets": st.lists(st.integers(-1, 12), min_size=2, max_size=2) | _JSON,
    }
)


@given(st.dictionaries(st.text(max_size=4), _ENTRY, max_size=4), st.integers(0, 16))
def test_near_misses_give_a_header_that_accounts_for_every_byte_or_its_own_error(
    entries: dict[str, Any], size: int
) -> None:
    file = crafted(entries, bytes(size))
    try:
        header = read(file)
    except HeaderError:
        return
    assert sum(tensor.end - tensor.begin for tensor in header.tensors) == size
