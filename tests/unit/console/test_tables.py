import pytest

from services.console.core.outcome import BROKEN, OK, REFUSED, exit_code
from services.console.core.tables import table


def test_a_table_aligns_its_columns_and_shows_what_is_missing() -> None:
    rows = [{"name": "a", "ready": True, "rate": 1.25}, {"name": "longer", "ready": False}]
    assert table(rows, ("name", "ready", "rate")) == ("NAME    READY  RATE\na       yes    1.25\nlonger  no     -")


def test_exit_codes_tell_a_refusal_from_a_failure() -> None:
    assert [exit_code(status) for status in (200, 201, 404, 422, 503)] == [OK, OK, REFUSED, REFUSED, BROKEN]


def test_moments_are_written_as_dates() -> None:
    assert table([{"updated_at_s": 86400.0}], ("updated_at_s",)) == "UPDATED AT\n1970-01-02 00:00:00"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.02, "0.02"),
        (1.25, "1.25"),
        (0.5, "0.5"),
        (7.0, "7.0"),
        (4774.604, "4774.6"),
        (0.0, "0.0"),
        (0.0004, "0.0004"),
    ],
)
def test_a_small_number_is_not_rounded_away(value: float, written: str) -> None:
    assert table([{"value": value}], ("value",)) == f"VALUE\n{written}"
