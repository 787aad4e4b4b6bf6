"""Logs: one JSON object a line on stderr, carrying the ids of the request in whose context it was written."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from contextvars import ContextVar, Token
from types import MappingProxyType, TracebackType
from typing import Any

import msgspec

_BOUND: ContextVar[Mapping[str, str]] = ContextVar("bound", default=MappingProxyType({}))
_FIELDS = "lorafleet_fields"


def configure(service: str, instance: str, level: str = "INFO") -> None:
    """Write every log line of the process, those of libraries included, as JSON. Replaces earlier handlers."""
    stderr = Stderr()
    stderr.setFormatter(JsonLines(service, instance))
    root = logging.getLogger()
    root.handlers[:] = [stderr]
    root.setLevel(level)
    # No line says them, and to find them out is a third of what a line costs.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def get_logger(name: str) -> Logger:
    return Logger(logging.getLogger(name))


class Logger:
    """`event` is one sentence that stays the same each time; what varies goes into fields."""

    def __init__(self, inner: logging.Logger) -> None:
        self._inner = inner

    def debug(self, event: str, /, **fields: object) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        self._write(logging.ERROR, event, fields)

    def exception(self, event: str, /, **fields: object) -> None:
        """An error with the traceback of the exception that is being handled."""
        self._write(logging.ERROR, event, fields, traceback=True)

    def _write(self, level: int, event: str, fields: Mapping[str, object], *, traceback: bool = False) -> None:
        if self._inner.isEnabledFor(level):
            # The text goes in as an argument: a percent sign in it must stay one.
            self._inner.log(level, "%s", event, exc_info=traceback, extra={_FIELDS: fields})


class Binding:
    """Ids that are bound; as a context manager, until its end."""

    def __init__(self, token: Token[Mapping[str, str]]) -> None:
        self._token = token

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _BOUND.reset(self._token)


def bind(**ids: str | None) -> Binding:
    """Add ids such as `request_id` and `adapter_id` to every line of this task and the tasks it starts.

    `with bind(...)` ends with the block; a plain call lasts as long as the task. None leaves an id out.
    """
    given = {name: value for name, value in ids.items() if value is not None}
    return Binding(_BOUND.set({**_BOUND.get(), **given}))


class Stderr(logging.Handler):
    """Whatever stderr is at the time: whoever captures or replaces it gets the lines."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
        except Exception:
            self.handleError(record)


class JsonLines(logging.Formatter):
    def __init__(self, service: str, instance: str) -> None:
        super().__init__()
        self._service = service
        self._instance = instance

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": self.formatTime(record),
            "level": record.levelname.lower(),
            "service": self._service,
            "instance": self._instance,
            "event": record.getMessage(),
            "logger": record.name,
        }
        extra = {**_BOUND.get(), **getattr(record, _FIELDS, {})}
        # A field that is called like a fixed one must neither hide it nor get lost.
        line.update({f"{name}_" if name in line else name: value for name, value in extra.items()})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return _encode(line)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        return f"{seconds}.{int(record.msecs):03d}Z"


def _encode(line: dict[str, object]) -> str:
    try:
        return msgspec.json.encode(line, enc_hook=_text).decode()
    except Exception:
        # A value that cannot be written must not cost the line.
        shown = {name: value if isinstance(value, str) else f"<{type(value).__name__}>" for name, value in line.items()}
        return msgspec.json.encode(shown).decode()


def _text(value: Any) -> str:
    return repr(value) if isinstance(value, BaseException) else str(value)
