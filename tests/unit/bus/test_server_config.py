"""The server's configuration and the passwords in it."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path

import pytest

from infra.nats.config import Ports, server_config
from infra.nats.credentials import USERS, load_or_create, write_private
from infra.nats.program import find_nats_server
from shared.contracts import catalog
from shared.contracts.channel import Service
from shared.contracts.streams import key_prefix


def test_passwords_are_drawn_once_and_for_the_owners_eyes_only(tmp_path: Path) -> None:
    path = tmp_path / "below" / "credentials.json"
    drawn = load_or_create(path)
    assert set(drawn) == {"provision", *(service.value for service in Service)}
    assert len(set(drawn.values())) == len(drawn)
    assert all(len(password) >= 32 for password in drawn.values())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_or_create(path) == drawn
    assert [file.name for file in path.parent.iterdir()] == ["credentials.json"]


def test_a_user_that_is_new_gets_a_password_and_the_others_keep_theirs(tmp_path: Path) -> None:
    path = tmp_path / "credentials.json"
    write_private(path, json.dumps({"gateway": "kept"}).encode())
    drawn = load_or_create(path)
    assert drawn["gateway"] == "kept"
    assert set(drawn) == set(USERS)


def test_every_user_is_in_the_configuration_with_its_own_rights() -> None:
    passwords = {user: f"password-of-{user}" for user in USERS}
    text = server_config(Ports(client=4222, monitoring=8222), Path('/data/with "quotes"'), passwords)
    assert 'listen: "127.0.0.1:4222"' in text
    assert 'http: "127.0.0.1:8222"' in text
    assert 'store_dir: "/data/with \\"quotes\\""' in text
    users = [json.loads(line.rstrip(",")) for line in text.splitlines() if line.lstrip().startswith('{"user"')]
    assert [(user["user"], user["password"]) for user in users] == [(user, passwords[user]) for user in USERS]
    rights = {user["user"]: user["permissions"] for user in users}
    aliases = f"{key_prefix(catalog.ALIAS)}>"
    assert aliases in rights["registry"]["publish"]["allow"]
    assert aliases not in rights["gateway"]["publish"]["allow"]
    assert "allow_responses" in rights["replica_worker"]
    assert "allow_responses" not in rights["gateway"]


def test_the_server_reads_it_wherever_its_folder_lies(tmp_path: Path) -> None:
    """Its configuration knows fewer escapes than JSON."""
    folder = tmp_path / 'josé "é" 数据'
    config = tmp_path / "nats.conf"
    write_private(config, server_config(Ports(client=-1, monitoring=-1), folder, dict.fromkeys(USERS, "p")).encode())
    checked = subprocess.run([find_nats_server(), "-t", "-c", str(config)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_a_user_without_password_is_no_user() -> None:
    with pytest.raises(KeyError):
        server_config(Ports(client=-1, monitoring=-1), Path("/data"), {})
