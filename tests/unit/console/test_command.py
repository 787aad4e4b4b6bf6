"""The command as scripts see it: exit codes and output, against a small admin server that answers by script."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from services.console.__main__ import main
from services.console.core.outcome import BROKEN, OK, REFUSED, UNREACHABLE

ANSWERS: dict[tuple[str, str], tuple[int, Any]] = {
    ("GET", "/internal/aliases"): (200, {"aliases": [{"alias": "acme/a:prod", "adapter_id": "a1"}]}),
    ("PUT", "/internal/aliases/acme/a:prod"): (409, {"error": {"message": "a1 is not active.", "code": "conflict"}}),
    ("GET", "/internal/keys"): (503, {"error": {"message": "The database is away.", "code": "unavailable"}}),
    ("GET", "/internal/base-models"): (200, {"base_models": [{"base_model_hash": "b" * 64}]}),
    ("POST", "/internal/adapters"): (
        422,
        {"error": {"message": "2 defects.", "defects": [
            {"code": "rank_too_large", "message": "rank 64 over 16."}, {"code": "bias", "message": "bias is set."},
        ]}},
    ),
}  # fmt: skip


class Scripted(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            while (size := int(self.rfile.readline(), 16)) > 0:
                self.rfile.read(size + 2)
            self.rfile.readline()
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        uri = {"weights_uri": "upload:" + self.path.rpartition("/")[2]}
        default = (200, uri) if "/uploads/" in self.path else (404, {"error": {"message": "no such thing"}})
        status, body = ANSWERS.get((self.command, self.path), default)
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = answer

    def log_message(self, format: str, *args: object) -> None:
        """Tests print nothing."""


@pytest.fixture(autouse=True)
def admin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Scripted)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    for name, value in {"URL": address, "ADMIN_URL": address, "API_KEY": "k", "ADMIN_KEY": "a"}.items():
        monkeypatch.setenv(f"LORAFLEET_{name}", value)
    yield
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_listing_is_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alias", "list"]) == OK
    assert capsys.readouterr().out.startswith("ALIAS")
    assert main(["alias", "list", "--json"]) == OK
    assert json.loads(capsys.readouterr().out) == [{"alias": "acme/a:prod", "adapter_id": "a1"}]


def test_a_refusal_is_the_fleets_sentence_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alias", "set", "acme/a:prod", "a1"]) == REFUSED
    assert capsys.readouterr().err == "a1 is not active.\n"


def test_a_broken_fleet_is_exit_code_4() -> None:
    assert main(["keys", "list"]) == BROKEN


def test_nobody_there_is_exit_code_3(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LORAFLEET_ADMIN_URL", "http://127.0.0.1:9")
    assert main(["keys", "list"]) == UNREACHABLE
    assert "is the fleet up?" in capsys.readouterr().err


def test_every_defect_of_a_registration_has_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"r": 64, "lora_alpha": 8, "target_modules": ["q_proj"]}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"weights")
    assert main(["adapters", "register", str(tmp_path), "--tenant", "acme"]) == REFUSED
    assert capsys.readouterr().err.splitlines() == [
        "2 defects.", "  rank_too_large: rank 64 over 16.", "  bias: bias is set.",
    ]  # fmt: skip


def test_a_folder_that_is_none_of_pefts_names_the_missing_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["adapters", "register", str(tmp_path), "--tenant", "acme"]) == 2
    assert "adapter_config.json is missing" in capsys.readouterr().err
