"""One PostgreSQL server: a user, a folder and a socket of its own, no network, and nothing it keeps is precious."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from infra.local.child import die_with_parent
from infra.postgres.program import copy_programs, find_programs

OWNER = "lorafleet"
_START_S = 30.0
_KNOCK_S = 0.01
_READY_LINE = 7
"""Of postmaster.pid: where the server writes that it takes connections."""
_IMMEDIATE_SHUTDOWN = signal.SIGQUIT
_UNPRIVILEGED = "nobody"
_CONFIG = """\
listen_addresses = ''
unix_socket_directories = '{folder}'
fsync = off
full_page_writes = off
max_connections = 200
shared_buffers = 64MB
log_min_messages = fatal
{more}
"""


class PostgresDidNotStart(Exception):
    """The text is the end of its log."""


class PostgresServer:
    """Start and stop from the main thread: the server ends with the thread that started it."""

    def __init__(self, folder: Path, more: str = "") -> None:
        """`folder` is new, and below folders that everybody may enter. `more` are lines of postgresql.conf."""
        self.folder = folder
        self._more = more
        self._process: subprocess.Popen[bytes] | None = None
        # PostgreSQL refuses to run as root; then the programs move to where another user can read them.
        self._user = _UNPRIVILEGED if os.geteuid() == 0 else None
        self._programs = find_programs() if self._user is None else copy_programs(find_programs(), folder / "programs")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql+asyncpg://{OWNER}@/{database}?host={self.folder}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def create(self) -> None:
        """The files of an empty server. Raises PostgresDidNotStart."""
        if self._user is not None:
            user = pwd.getpwnam(self._user)
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        made = self._run("initdb", "--no-sync", "--auth=trust", "--locale=C", "--encoding=UTF8", "--wal-segsize=1",
                         f"--username={OWNER}", "--no-instructions", f"--pgdata={self._data}")  # fmt: skip
        _, said = made.communicate()
        if made.returncode != 0:
            raise PostgresDidNotStart(said.decode(errors="replace")[-2000:])
        with (self._data / "postgresql.conf").open("a") as config:
            config.write(_CONFIG.format(folder=self.folder, more=self._more))

    def start(self) -> None:
        """Returns when it takes connections. Raises PostgresDidNotStart."""
        with (self.folder / "log").open("ab") as log:
            self._process = self._run("postgres", "-D", str(self._data), stdout=log, stderr=log)
        deadline_s = time.monotonic() + _START_S
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                self.kill()
                raise PostgresDidNotStart((self.folder / "log").read_text(errors="replace")[-2000:])
            time.sleep(_KNOCK_S)

    def stop(self) -> None:
        """At once: connections break, and the next start rolls back what was under way. Does nothing if it does not
        run."""
        self._end(kill=False)

    def kill(self) -> None:
        """As `kill -9`."""
        self._end(kill=True)

    def _end(self, *, kill: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill() if kill else process.send_signal(_IMMEDIATE_SHUTDOWN)
        process.wait()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _ready(self) -> bool:
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > _READY_LINE and lines[0] == str(self.pid) and lines[_READY_LINE].strip() == "ready"

    def _run(self, program: str, *words: str, **files: Any) -> subprocess.Popen[bytes]:
        as_whom: dict[str, Any] = {}
        if self._user is not None:
            user = pwd.getpwnam(self._user)
            as_whom = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        return subprocess.Popen(
            [str(self._programs / program), *words],
            stdin=subprocess.DEVNULL,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **files},
            cwd=self.folder,
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            preexec_fn=die_with_parent,
            **as_whom,
        )


@contextmanager
def postgres_server(more: str = "") -> Iterator[PostgresServer]:
    """A running server in a new folder, which goes with it."""
    folder = Path(tempfile.mkdtemp(prefix="lf-pg-", dir=_open_place()))
    server = PostgresServer(folder, more)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _open_place() -> str:
    """Where another user may enter and a socket's path stays short."""
    for place in (Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")):
        above = (place, *place.parents)
        if len(str(place)) < 60 and all(folder.stat().st_mode & 0o001 for folder in above if folder.exists()):
            return str(place)
    return "/tmp"
