"""A stranger's JSON takes no longer than its length says, and is read the same."""

from __future__ import annotations

import math

import msgspec
import pytest

from shared import json_values
from shared.json_values import json_value


def test_no_fraction_is_read_in_msgspecs_own_way() -> None:
    """In which one may take as long as a thousand others."""
    assert json_values._decoder.float_hook is json_values._fraction
    said = b'{"a":1e300,"b":[9007199254740993.00000000000000000001,-1.5E-3],"c":1}'
    assert json_value(said) == {"a": 1e300, "b": [9007199254740994.0, -0.0015], "c": 1}


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1" + "0" * 400 + ".5"])
def test_a_number_out_of_range_is_no_json(number: str) -> None:
    with pytest.raises(msgspec.DecodeError, match="Number out of range"):
        json_value(f"[{number}]")


@pytest.mark.parametrize("number", ["0.1", "5e-324", "1.7976931348623157e308", "-0.0", "2.5"])
def test_a_fraction_is_the_nearest_there_is(number: str) -> None:
    assert math.copysign(1, json_value(number)) == math.copysign(1, float(number))
    assert json_value(number) == float(number)
