"""Regular expressions over module names, as PEFT's users write them, in a time that no expression can stretch.

PEFT matches with Python's `re`, which backtracks: a hostile expression runs for ever. RE2 takes a time linear in the
name. What it cannot express is refused, and so are the few spellings that it reads otherwise than Python does.
"""

from __future__ import annotations

import re

import re2

LONGEST_EXPRESSION = 2_000
LARGEST_PROGRAM = 2_000
"""Instructions of RE2. One that names every module of 80 layers by alternatives has a few hundred."""

_READ_OTHERWISE = re.compile(r"\[\[|\[:|\{,|--|&&|~~|\|\||\\[1-9]")
"""Classes within classes, a repetition without a lower bound, back references: RE2 means something else by them."""


class NoExpression(ValueError):
    """Python's `re` takes it for no regular expression, so PEFT never applied it; one clause."""


class ExpressionNotServed(ValueError):
    """A regular expression that is not matched here; one clause."""


class Expression:
    """Of a whole dotted name, never of a part. `program_size` is what matching it may cost."""

    def __init__(self, text: str) -> None:
        """Raises NoExpression, ExpressionNotServed."""
        _check(text)
        options = re2.Options()
        options.log_errors = False
        try:
            self._compiled = re2.compile(text, options)
        except re2.error as error:
            what = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
            raise ExpressionNotServed(f"it needs more than a linear matcher has ({what})") from error
        self.program_size: int = self._compiled.programsize
        if self.program_size > LARGEST_PROGRAM:
            raise ExpressionNotServed(f"it compiles to {self.program_size} instructions, {LARGEST_PROGRAM} are allowed")

    def matches(self, name: str) -> bool:
        return self._compiled.fullmatch(name) is not None


def _check(text: str) -> None:
    if len(text) > LONGEST_EXPRESSION:
        raise ExpressionNotServed(f"it has {len(text)} characters, {LONGEST_EXPRESSION} are allowed")
    if not (text.isascii() and text.isprintable()):
        raise ExpressionNotServed("it holds characters that no module name has")
    if (found := _READ_OTHERWISE.search(text)) is not None:
        raise ExpressionNotServed(f"{found[0]!r} means different things to different matchers")
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise NoExpression(f"{error}") from error
