"""SQLite for tests: like PostgreSQL's template, a file that has its tables already."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import make_url

from services.registry.io.changes import Changes
from services.registry.io.database import Database

_made: list[bytes] = []
"""The file, once it is: making it takes longer than most tests do with it."""


async def lay_migrated(url: str) -> None:
    """Where there is no file yet; another database is left as it is. Who starts a registry on it migrates it as ever,
    and finds nothing to do."""
    if (place := _missing(url)) is None:
        return
    if not _made:
        with TemporaryDirectory() as folder:
            await _migrate(f"sqlite+aiosqlite:///{folder}/registry.db")
            _made.append(_read(folder))
    _lay(place, _made[0])


def _missing(url: str) -> Path | None:
    parts = make_url(url)
    if parts.get_backend_name() != "sqlite" or parts.database is None or Path(parts.database).exists():
        return None
    return Path(parts.database)


async def _migrate(url: str) -> None:
    database = Database(url, Changes())
    await database.start()
    await database.stop()


def _read(folder: str) -> bytes:
    return Path(folder, "registry.db").read_bytes()


def _lay(place: Path, content: bytes) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
