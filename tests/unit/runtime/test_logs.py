from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shared.runtime import logs

Lines = Any


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Iterator[Lines]:
    """Call it for what was logged since the last call."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    logs.configure("gateway", "gateway-1")

    def read() -> list[dict[str, Any]]:
        return [msgspec.json.decode(line) for line in capsys.readouterr().err.splitlines()]

    yield read
    root.handlers[:] = before
    root.setLevel(level)


log = logs.get_logger("services.gateway.app")


def test_a_line_is_one_json_object(lines: Lines) -> None:
    log.info("a replica was lost", replica_id="r-1", silent_s=3.0)
    [line] = lines()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("at"))
    assert line == {
        "level": "info", "service": "gateway", "instance": "gateway-1", "event": "a replica was lost",
        "logger": "services.gateway.app", "replica_id": "r-1", "silent_s": 3.0,
    }  # fmt: skip


def test_levels_are_said_and_debug_is_off(lines: Lines) -> None:
    log.debug("detail")
    log.warning("odd")
    log.error("wrong")
    assert [line["level"] for line in lines()] == ["warning", "error"]


def test_lines_of_libraries_are_json_too(lines: Lines) -> None:
    logging.getLogger("uvicorn").warning("%d connections", 3)
    assert [line["event"] for line in lines()] == ["3 connections"]


def test_line_breaks_and_percent_signs_of_customers_stay_inside_the_line(lines: Lines) -> None:
    log.info("100 %s", alias='a\n{"level": "error"}')
    [line] = lines()
    assert line["event"] == "100 %s"
    assert line["alias"] == 'a\n{"level": "error"}'


async def test_ids_are_bound_to_a_task_and_to_no_other(lines: Lines) -> None:
    both_bound = asyncio.Barrier(2)

    async def serve(request_id: str) -> None:
        logs.bind(request_id=request_id, adapter_id=None)
        await both_bound.wait()
        log.info("served")
        await asyncio.create_task(inner())

    async def inner() -> None:
        log.info("inner")

    await asyncio.gather(serve("a"), serve("b"))
    log.info("outside")
    *served, outside = lines()
    found = sorted((line["event"], line["request_id"]) for line in served)
    assert found == [("inner", "a"), ("inner", "b"), ("served", "a"), ("served", "b")]
    assert "request_id" not in outside
    assert all("adapter_id" not in line for line in served)


def test_a_block_ends_its_bindings_and_keeps_outer_ones(lines: Lines) -> None:
    with logs.bind(request_id="a"):
        with logs.bind(adapter_id="x-v1"):
            log.info("within")
        log.info("between")
    log.info("outside")
    found = [(line.get("request_id"), line.get("adapter_id")) for line in lines()]
    assert found == [("a", "x-v1"), ("a", None), (None, None)]


def test_a_field_called_like_a_fixed_one_hides_nothing(lines: Lines) -> None:
    log.info("started", service="other")
    [line] = lines()
    assert (line["service"], line["service_"]) == ("gateway", "other")


def test_values_that_json_does_not_know_are_written_as_text(lines: Lines) -> None:
    log.info("odd", path=Path("/x"), error=TimeoutError(), keys={(1, 2): 3}, rate=float("nan"))
    [line] = lines()
    assert (line["path"], line["error"], line["keys"]) == ("/x", "TimeoutError()", {"(1, 2)": 3})
    assert line["rate"] is None


def test_a_value_that_cannot_be_written_does_not_cost_the_line(lines: Lines) -> None:
    class Unwritable:
        def __str__(self) -> str:
            raise RuntimeError("no words for it")

    log.info("strange", value=Unwritable())
    [line] = lines()
    assert (line["event"], line["value"]) == ("strange", "<Unwritable>")


def test_an_exception_comes_with_its_traceback(lines: Lines) -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("it failed")
    [line] = lines()
    assert line["level"] == "error"
    assert line["traceback"].endswith("ValueError: broken")
