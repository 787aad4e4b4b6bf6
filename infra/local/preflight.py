"""What must be true before anything starts. Each failure is one sentence that says what to do."""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import os
import shutil
import socket
from pathlib import Path
from typing import IO

NEEDED_DISK_BYTES = 1 << 30
_EXTRAS = {"vllm": "vllm"}
"""The package that an engine cannot do without, by engine; its extra is called alike."""


class CannotStart(Exception):
    """One sentence: what is wrong and what to do about it."""


class WrongSetting(CannotStart):
    """It is something that the operator set, and starting again would not change it."""


def check_port(host: str, port: int, setting: str) -> None:
    """Raises CannotStart if something listens on the port, or it may not be used."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise CannotStart(
                    f"Port {port} on {host} is in use: stop what listens there, or choose another with {setting}."
                ) from error
            raise CannotStart(
                f"Cannot listen on {host}:{port} ({error.strerror}): change LORAFLEET_HOST or {setting}."
            ) from error


def check_engine(engine: str) -> None:
    """Raises CannotStart if the package behind the engine is not installed for this Python."""
    package = _EXTRAS.get(engine)
    if package is not None and importlib.util.find_spec(package) is None:
        raise CannotStart(
            f"LORAFLEET_ENGINE={engine} needs the package {package}, which is not installed: "
            f"`pip install -e '.[{package}]'` brings it, and docs/{package}.md says more."
        )


def check_merging(share: str, engine: str) -> None:
    """Raises CannotStart if the autoscaler is to start merged replicas, as a `share` that is not 0 says, on an engine
    that has none: it would try for ever."""
    if share.strip("0.") and engine != "torch":
        raise CannotStart(f"LORAFLEET_AUTOSCALER_MERGED_SHARE needs LORAFLEET_ENGINE=torch, not {engine}.")


def check_disk(folder: Path, needed_bytes: int = NEEDED_DISK_BYTES) -> None:
    """Raises CannotStart if the file system of `folder` has too little room."""
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise CannotStart(
            f"{folder} has {free >> 20} MiB free, lorafleet needs {needed_bytes >> 20} MiB: "
            "free some space, or set LORAFLEET_HOME to a folder on a larger disk."
        )


def take_lock(path: Path) -> IO[str]:
    """Become the only supervisor of this folder; held until the file is closed.

    Raises CannotStart naming the pid that holds it.
    """
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.seek(0)
        pid = file.read().strip() or "unknown"
        file.close()
        raise CannotStart(f"A fleet already runs here (supervisor pid {pid}): `make down` stops it.") from error
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file


def holder(path: Path) -> int | None:
    """The pid of the supervisor that holds the lock, or None if nobody does."""
    if not path.exists():
        return None
    with path.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(file.read().strip() or 0) or None
    return None
