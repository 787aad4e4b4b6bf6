"""`lorafleet migrate` and `bases` against a small admin server that answers by script."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.console.__main__ import main
from services.console.core.migrating import Unclear, base_meant, migration_meant, quietest_first
from services.console.core.outcome import OK, REFUSED, USAGE
from shared.base_model import base_model_hash
from tests.support.scripted_http import Answer, Asked, answering
from tests.support.tool_templates import HERMES

OLD, NEW = "ab" * 32, "cd" * 32
BASES = [{"base_model_hash": OLD, "name": "old"}, {"base_model_hash": NEW, "name": "new"}]
RUNNING = {
    "migration_id": "m1", "state": "running", "from_base_model_hash": OLD, "to_base_model_hash": NEW,
    "reason": "better", "actor": "ann", "created_at_s": 0.0,
}  # fmt: skip
PROGRESS = {
    "items": 2, "by_state": {"cut_over": 1, "trained": 1}, "aliases_left": 2, "aliases_moved": 1, "overdue": 1,
    "untrained": 0, "gpu_hours_left": 0.0, "usd_left": 0.0,
}  # fmt: skip


def item(adapter_id: str, state: str, *aliases: str, **said: Any) -> dict[str, Any]:
    given = {
        "tenant_id": "acme",
        "moved": [],
        "successor_id": None,
        "updated_at_s": 0.0,
        "reason": "",
        "overdue": False,
    }
    return {
        **given,
        "adapter_id": adapter_id,
        "state": state,
        "aliases": list(aliases),
        "requests_per_day": 1.0,
        **said,
    }


ITEMS = [item("busy", "trained", "acme/busy", requests_per_day=9.0), item("quiet", "trained", "acme/quiet")]
ROW = {
    "adapter_id": "busy", "tenant_id": "acme", "aliases": ["acme/busy"], "requests_per_day": 9.0,
    "owners": ["r1", "r2"], "dataset_uri": "s3://d", "action": "retrain", "reason": "", "gpu_hours": 0.5, "usd": 1.25,
}  # fmt: skip
TOTALS = {
    "adapters": 1, "aliases": 1, "retrain": 1, "blocked": 0, "retire": 0, "requests_per_day": 9.0, "gpu_hours": 0.5,
    "usd": 1.25,
}  # fmt: skip


def answer(asked: Asked) -> Answer:
    path, _, query = asked.path.partition("?")
    body = json.loads(asked.body or b"{}")
    status, found = 200, _answers(asked.method, path, query, body)
    if isinstance(found, tuple):
        status, found = found
    return Answer(status, json.dumps(found).encode())


def _answers(method: str, path: str, query: str, body: dict[str, Any]) -> Any:
    match method, path.removeprefix("/internal"):
        case "GET", "/base-models":
            return {"base_models": BASES}
        case "GET", "/migrations":
            return {"migrations": [RUNNING]}
        case "POST", "/migrations":
            return (201, RUNNING)
        case "GET", "/migrations/plan":
            return {"rows": [ROW], "totals": TOTALS, "next": None}
        case "GET", "/migrations/m1":
            return {**RUNNING, "progress": PROGRESS}
        case "GET", "/migrations/m1/items":
            first = "after" not in query
            return {"items": ITEMS[:1] if first else ITEMS[1:], "next": "busy" if first else None}
        case "POST", "/migrations/m1/cutover" if body["alias"] == "acme/busy":
            return (409, {"error": {"message": "acme/busy stays as it is.", "code": "not_resident"}})
        case "POST", "/migrations/m1/cutover" | "/migrations/m1/rollback":
            return {"alias": body["alias"], "adapter_id": "new", "previous_adapter_id": "old", "changed": True}
        case "POST", "/migrations/m1/finish":
            return (409, {"error": {"message": "Base model old cannot go.", "code": "base_model_in_use", "defects": [
                {"code": "alias_points_here", "message": f"Alias acme/{n} means v{n}."} for n in range(2)
            ]}})  # fmt: skip
        case "POST", _:
            return {**RUNNING, "name": "old"}
        case "PUT", _:
            return body
    return (404, {"error": {"message": f"no {method} {path}"}})


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, list[Asked]]]:
    """Its address, and what it was asked."""
    every: list[Asked] = []

    def note(request: Asked) -> Answer:
        every.append(request)
        return answer(request)

    with answering(note) as address:
        yield address, every


@pytest.fixture(autouse=True)
def asked(server: tuple[str, list[Asked]], monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """What the server was asked in this test."""
    address, every = server
    every.clear()
    for name, value in {"URL": address, "ADMIN_URL": address, "API_KEY": "k", "ADMIN_KEY": "a"}.items():
        monkeypatch.setenv(f"LORAFLEET_{name}", value)
    return every


def posted(asked: list[Asked]) -> list[tuple[str, Any]]:
    return [(one.path.rpartition("/")[2], json.loads(one.body)) for one in asked if one.method == "POST"]


def test_a_plan_is_a_table_and_a_sentence(asked: list[Asked], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "plan", "--from", "old", "--to", NEW[:8], "--gpu-hours", "2"]) == OK
    out = capsys.readouterr().out
    assert out.startswith("ADAPTER ID")
    assert "r1, r2" in out
    assert "1 to train again: 0.5 GPU-hours, 1.25 USD" in out
    assert f"from={OLD}&to={NEW}&gpu_hours=2.0" in asked[-1].path
    assert main(["migrate", "plan", "--from", "old", "--to", "new", "--json"]) == OK
    assert json.loads(capsys.readouterr().out) == {"rows": [ROW], "totals": TOTALS}


def test_a_start_names_the_bases_by_their_hashes(asked: list[Asked]) -> None:
    assert main(["migrate", "start", "--from", "old", "--to", "new", "--by", "ann", "--reason", "better"]) == OK
    [(_, body)] = posted(asked)
    assert body == {
        "from_base_model_hash": OLD, "to_base_model_hash": NEW, "gpu_hours": 0.5, "usd_per_gpu_hour": 2.5, "by": "ann",
        "reason": "better",
    }  # fmt: skip


def test_the_status_has_a_headline_and_every_adapter(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "status"]) == OK
    out = capsys.readouterr().out
    for part in ("Migration m1 is running", "1 cut_over, 1 trained", "1 of 3 moved", "Overdue: 1", "by ann: better"):
        assert part in out
    assert out.index("busy") < out.index("quiet")


def test_every_ready_alias_is_cut_over_and_one_that_is_refused_stops_no_other(
    asked: list[Asked], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["migrate", "cutover", "--all", "--by", "ann"]) == REFUSED
    said = capsys.readouterr()
    assert said.out.splitlines() == ["acme/quiet -> new (before: old)", "acme/busy: acme/busy stays as it is."]
    assert said.err == "1 of 2 were refused.\n"
    assert [body["alias"] for _, body in posted(asked)] == ["acme/quiet", "acme/busy"]


def test_the_next_one_is_the_quietest(asked: list[Asked], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "cutover", "--next", "1", "--json"]) == OK
    assert [one["alias"] for one in json.loads(capsys.readouterr().out)] == ["acme/quiet"]
    assert main(["migrate", "cutover"]) == USAGE


def test_where_nothing_is_ready_a_cut_over_says_so(
    monkeypatch: pytest.MonkeyPatch, asked: list[Asked], capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(globals(), "ITEMS", [])
    assert main(["migrate", "cutover", "--all"]) == OK
    assert capsys.readouterr().out.startswith("No alias is ready to be cut over")
    assert main(["migrate", "cutover", "--all", "--json"]) == OK
    assert json.loads(capsys.readouterr().out) == []
    assert posted(asked) == []


@pytest.mark.parametrize(("change", "story"), [("hold", "held"), ("resume", "running"), ("cancel", "cancelled")])
def test_a_migration_is_turned_by_whom_and_why(
    asked: list[Asked], capsys: pytest.CaptureFixture[str], change: str, story: str
) -> None:
    assert main(["migrate", change, "--migration", "m1", "--by", "ann", "--reason", "why"]) == OK
    assert posted(asked) == [(change, {"by": "ann", "reason": "why"})]
    assert capsys.readouterr().out == f"migration m1 is {story}\n"


def test_an_alias_goes_back(asked: list[Asked]) -> None:
    assert main(["migrate", "rollback", "acme/quiet", "--by", "ann"]) == OK
    assert posted(asked) == [("rollback", {"by": "ann", "alias": "acme/quiet"})]


def test_an_end_that_is_refused_names_what_points_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "finish"]) == REFUSED
    assert "Alias acme/0 means v0." in capsys.readouterr().err


# -- what is meant -------------------------------------------------------------------------------------


def test_a_base_is_meant_by_its_name_or_the_beginning_of_its_hash() -> None:
    assert [base_meant(BASES, text) for text in ("old", OLD[:4], NEW)] == [OLD, OLD, NEW]
    for text in ("", "nobody"):
        with pytest.raises(Unclear, match="is no base model"):
            base_meant(BASES, text)
    with pytest.raises(Unclear, match="means several"):
        base_meant([*BASES, {"base_model_hash": "abc" + "0" * 61, "name": "third"}], "ab")


def test_a_migration_need_not_be_named_if_there_is_one() -> None:
    ended = {**RUNNING, "migration_id": "m0", "state": "finished"}
    assert migration_meant([RUNNING, ended], None) == "m1"
    assert migration_meant([ended], None, ended=True) == "m0"
    assert migration_meant([], "m9") == "m9"
    with pytest.raises(Unclear, match="no migration under way"):
        migration_meant([ended], None)
    with pytest.raises(Unclear, match="name one by --migration"):
        migration_meant([RUNNING, {**RUNNING, "migration_id": "m2"}], None)


def test_aliases_go_quietest_first_and_once() -> None:
    items = [*ITEMS, item("split", "trained", "acme/quiet", requests_per_day=0.5)]
    assert quietest_first(items) == ["acme/quiet", "acme/busy"]


# -- bases ---------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = {
        "hidden_size": 64, "intermediate_size": 160, "num_attention_heads": 4, "num_hidden_layers": 3,
        "max_position_embeddings": 512, "vocab_size": 100,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    return tmp_path


def test_a_folder_is_hashed_without_a_fleet(
    folder: Path, asked: list[Asked], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bases", "hash", str(folder)]) == OK
    assert capsys.readouterr().out == f"{base_model_hash(folder)}\n"
    assert main(["bases", "hash", str(folder / "nowhere")]) == USAGE
    assert asked == []


def test_a_base_is_added_with_its_rank_classes(
    folder: Path, asked: list[Asked], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bases", "add", str(folder), "--rank-classes", "64,16", "--name", "tiny"]) == OK
    [put] = asked
    told = json.loads(put.body)
    assert put.path.endswith(told["base_model_hash"])
    assert (told["name"], told["rank_classes"], told["vocabulary_size"]) == ("tiny", [16, 64], 100)
    assert "with rank classes 16, 64" in capsys.readouterr().out
    (folder / "config.json").write_text("{}")
    assert main(["bases", "add", str(folder)]) == USAGE
    assert "has no 'hidden_size'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "parser"),
    [((), "hermes"), (("--tool-parser", ""), ""), (("--tool-parser", "llama3_json"), "llama3_json")],
)
def test_how_a_base_writes_calls_is_read_from_its_folder_unless_it_is_said(
    folder: Path, asked: list[Asked], flags: tuple[str, ...], parser: str
) -> None:
    (folder / "chat_template.jinja").write_text(HERMES)
    assert main(["bases", "add", str(folder), *flags]) == OK
    assert json.loads(asked[0].body)["tool_parser"] == parser


def test_a_base_is_retired_by_its_name(asked: list[Asked]) -> None:
    assert main(["bases", "retire", "old"]) == OK
    assert asked[-1].path == f"/internal/base-models/{OLD}/retire"
