from pathlib import Path

import pytest

from infra.local.preflight import CannotStart
from infra.local.secret_file import load_or_create, save


def test_secrets_are_made_once_and_read_by_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "secrets.json"
    made = load_or_create(path)
    assert load_or_create(path) == made
    assert path.stat().st_mode & 0o077 == 0
    save(path, made)
    assert [file.name for file in tmp_path.iterdir()] == ["secrets.json"]


def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "secrets.json"
    path.write_text("")
    with pytest.raises(CannotStart, match=r"secrets\.json is damaged .*delete it"):
        load_or_create(path)
