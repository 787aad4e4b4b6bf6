"""The golden copy says what is deployed; a change of the contract shows up here first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from shared.contracts import document
from shared.contracts.catalog import CANCEL
from shared.contracts.channel import Channel, Kind, Service
from shared.contracts.shape import structs
from tests.contract.compatibility import GOLDEN, REGENERATE, breaks, current, read_golden
from tests.contract.regenerate import main

ROOT = Path(__file__).parent.parent.parent


def test_nothing_breaks_what_is_deployed() -> None:
    assert breaks(read_golden(), current()) == []


def test_the_golden_copy_is_fresh() -> None:
    assert read_golden() == current(), f"run: {REGENERATE}"


def test_the_page_of_channels_is_fresh() -> None:
    assert (ROOT / document.PAGE).read_text() == document.page(), "run: make contract-docs"


# -- planted changes: a channel with one message, before and after --------------------------------------


class Note(msgspec.Struct, frozen=True, kw_only=True, tag="note"):
    text: str
    at_s: float = 0.0


class Point(msgspec.Struct, frozen=True, array_like=True):
    x: int
    y: int


def channel_of(message: type[Any], **changes: Any) -> Channel[Any, Any]:
    fields = {"name": "note", "kind": Kind.TELEMETRY, "summary": "", "writers": (Service.WORKER,), "readers": ()}
    return Channel(message=message, **{**fields, **changes})


def breaks_with(before: type[Any], after: type[Any], **changes: Any) -> list[str]:
    return breaks(current([channel_of(before)]), current([channel_of(after, **changes)]))


def variant(name: str, base: type[msgspec.Struct], fields: list[Any], **options: Any) -> type[msgspec.Struct]:
    config: Any = {"kw_only": not base.__struct_config__.array_like, "array_like": base.__struct_config__.array_like}
    tag = base.__struct_config__.tag
    return msgspec.defstruct(name, fields, frozen=True, **{**config, "tag": tag, **options})


TEXT, AT_S, X, Y = ("text", str), ("at_s", float, 0.0), ("x", int), ("y", int)


@pytest.mark.parametrize(
    ("before", "fields", "options", "sentence"),
    [
        (Note, [TEXT], {}, "Note.at_s is gone (a rename counts as that)"),
        (Note, [TEXT, AT_S, ("author", str)], {}, "Note.author is new and has no default"),
        (Note, [("text", int), AT_S], {}, "Note.text changed its type or its default"),
        (Note, [("text", str | None), AT_S], {}, "Note.text changed its type or its default"),
        (Note, [TEXT, ("at_s", float, 1.0)], {}, "Note.at_s changed its type or its default"),
        (Note, [TEXT, AT_S], {"tag": "memo"}, "Note is encoded in another way"),
        (Note, [TEXT, AT_S], {"array_like": True}, "Note is encoded in another way"),
        (Note, [TEXT, AT_S], {"forbid_unknown_fields": True}, "Note refuses unknown fields now"),
        (Point, [X, Y, ("z", int)], {}, "Point.z is new and has no default"),
        (Point, [Y, X], {}, "Point is an array: new fields go to its end"),
    ],
)
def test_a_planted_break_is_found(before: type[Any], fields: list[Any], options: Any, sentence: str) -> None:
    after = variant(before.__name__, before, fields, **options)
    assert breaks_with(before, after) == [sentence]


@pytest.mark.parametrize(
    ("before", "fields"),
    [
        (Note, [TEXT, AT_S, ("author", str, "")]),
        (Note, [AT_S, ("author", str | None, None), TEXT]),
        (Point, [X, Y, ("z", int, 0)]),
    ],
)
def test_a_field_with_a_default_may_be_added(before: type[Any], fields: list[Any]) -> None:
    assert breaks_with(before, variant(before.__name__, before, fields)) == []


def test_a_channel_may_neither_go_nor_move() -> None:
    assert breaks(current([channel_of(Note)]), current([])) == ["channel note is gone", "message Note is gone"]
    [moved] = breaks_with(Note, Note, params=("replica_id",))
    assert moved.startswith("channel note changed")


def test_two_messages_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two messages are called Note"):
        structs([Note, variant("Note", Note, [TEXT])])


# -- regenerate -----------------------------------------------------------------------------------------


@pytest.fixture
def golden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = tmp_path / "messages.json"
    copy.write_bytes(GOLDEN.read_bytes())
    for module in ("compatibility", "regenerate"):
        monkeypatch.setattr(f"tests.contract.{module}.GOLDEN", copy)
    return copy


def test_regenerate_refuses_a_break_unless_it_is_meant(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planted = golden.read_bytes().replace(CANCEL.name.encode(), b"replica.abort")
    golden.write_bytes(planted)
    assert main([]) == 1
    assert "channel replica.abort is gone" in capsys.readouterr().err
    assert golden.read_bytes() == planted
    assert main(["--break"]) == 0
    assert golden.read_bytes() == GOLDEN.read_bytes()
