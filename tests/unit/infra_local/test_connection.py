from pathlib import Path

import pytest

from infra.local.connection import NotConfigured, find_connection, parse_env

DEMO = "LORAFLEET_URL=http://h:1/\nLORAFLEET_API_KEY=k\nLORAFLEET_ADMIN_URL=http://h:2\nLORAFLEET_ADMIN_KEY=a\n"


def test_the_nearest_demo_env_is_found_from_a_folder_below(tmp_path: Path) -> None:
    (tmp_path / ".lorafleet").mkdir()
    (tmp_path / ".lorafleet" / "demo.env").write_text(DEMO + "LORAFLEET_ALIASES='a/b:prod c/d'\n")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    found = find_connection({}, tmp_path / "deep" / "er")
    assert (found.url, found.aliases) == ("http://h:1", ("a/b:prod", "c/d"))


def test_variables_win_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "demo.env").write_text(DEMO)
    found = find_connection({"LORAFLEET_HOME": str(tmp_path), "LORAFLEET_URL": "http://other"}, tmp_path)
    assert (found.url, found.api_key) == ("http://other", "k")


def test_without_a_fleet_the_missing_value_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotConfigured, match=r"LORAFLEET_URL is not set .*`make up` first, or `set -a; source "):
        find_connection({"LORAFLEET_HOME": str(tmp_path)}, tmp_path)


def test_an_env_file_is_read_as_a_shell_would() -> None:
    assert parse_env("A='x y'\n# B=1\nnothing\nC=\n") == {"A": "x y", "C": ""}
