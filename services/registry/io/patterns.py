"""Regular expressions that customers write, matched in a time that grows with the text and with nothing else."""

from __future__ import annotations

import re2

LONGEST_PATTERN = 1_000
_MOST_MEMORY_BYTES = 8 << 20


class PatternInvalid(ValueError):
    """One clause."""


def compiled(pattern: str) -> re2._Regexp:
    """RE2's dialect: what needs backtracking (back references, looking around) is refused. Raises PatternInvalid."""
    if len(pattern) > LONGEST_PATTERN:
        raise PatternInvalid(f"it has {len(pattern)} characters, {LONGEST_PATTERN} are allowed")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MOST_MEMORY_BYTES
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        what = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise PatternInvalid(f"it is no regular expression of RE2 ({what})") from error


def found_in(pattern: str, text: str) -> bool:
    """Anywhere in the text. Raises PatternInvalid."""
    return compiled(pattern).search(text) is not None
