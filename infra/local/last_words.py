"""What a service said last, as the sentence that reports its death."""

from __future__ import annotations

import ast
import re
from typing import Any

import msgspec

_LONGEST = 1000
_GOLDEN = re.compile(r"\bgolden(\.json| prompt)")
_RECORD_ANEW = "after a change on purpose, `lorafleet bases golden FOLDER` records the answer anew"
_SHOWN_ERROR = re.compile(r"[A-Za-z_][\w.]*\((.*)\)", re.DOTALL)


def sentence(log: str) -> str:
    """The last log line without its traceback, if it is an error or nothing follows it, else the last line as it is:
    a library's last gasp may follow an error. "" of an empty log."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    if not lines:
        return ""
    entry = next(filter(None, map(_entry, reversed(lines))), None)
    if entry is not None and (entry.get("level") == "error" or lines[-1].startswith("{")):
        return _of_entry(entry)
    return lines[-1][:_LONGEST]


def _entry(line: str) -> dict[str, Any] | None:
    """A line as shared.runtime.logs writes it, or None."""
    if not line.startswith("{"):
        return None
    try:
        entry = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    return entry if isinstance(entry.get("event"), str) else None


def _of_entry(entry: dict[str, Any]) -> str:
    why = _message(str(entry.get("reason") or entry.get("error") or ""))
    said = ": ".join(filter(None, (entry["event"], why)))[:_LONGEST]
    return f"{said}; {_RECORD_ANEW}" if _GOLDEN.search(why) else said


def _message(error: str) -> str:
    """The text in `EngineFailed('text')`, as exceptions are logged; anything else as it is."""
    shown = _SHOWN_ERROR.fullmatch(error)
    if shown is None:
        return error
    try:
        text = ast.literal_eval(shown[1])
    except (ValueError, SyntaxError):
        return error
    return text if isinstance(text, str) and text else error
