import socket
from pathlib import Path

import pytest

from infra.local.preflight import CannotStart, check_disk, check_engine, check_merging, check_port, holder, take_lock


def test_a_port_in_use_is_named_with_the_setting_that_changes_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CannotStart, match=f"Port {port} on 127.0.0.1 is in use.*LORAFLEET_PORT"):
            check_port("127.0.0.1", port, "LORAFLEET_PORT")


def test_a_host_that_is_not_here_is_named_with_its_setting() -> None:
    with pytest.raises(CannotStart, match=r"Cannot listen on 192\.0\.2\.1:0 .*LORAFLEET_HOST"):
        check_port("192.0.2.1", 0, "LORAFLEET_PORT")


def test_too_little_disk_says_how_much_is_needed(tmp_path: Path) -> None:
    check_disk(tmp_path, needed_bytes=1)
    with pytest.raises(CannotStart, match="free some space"):
        check_disk(tmp_path, needed_bytes=1 << 60)


def test_an_engine_without_its_package_names_the_extra_and_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", {"vllm": None}.__getitem__)
    with pytest.raises(CannotStart, match=r"ENGINE=vllm .*`pip install -e '\.\[vllm\]'`.*docs/vllm\.md"):
        check_engine("vllm")
    check_engine("torch")
    monkeypatch.setattr("importlib.util.find_spec", {"vllm": "found"}.__getitem__)
    check_engine("vllm")


def test_merged_replicas_that_no_autoscaler_could_start_are_refused() -> None:
    with pytest.raises(CannotStart, match="AUTOSCALER_MERGED_SHARE needs LORAFLEET_ENGINE=torch, not timed"):
        check_merging("0.5", "timed")
    check_merging("0.5", "torch")
    for never in ("", "0", "0.0"):
        check_merging(never, "timed")


def test_a_second_supervisor_is_told_who_the_first_is(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with take_lock(path):
        pid = holder(path)
        assert pid is not None
        with pytest.raises(CannotStart, match=f"pid {pid}"):
            take_lock(path)
    assert holder(path) is None
