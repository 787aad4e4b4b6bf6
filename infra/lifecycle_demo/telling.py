"""What the audience sees, and the `lorafleet` commands that the story is told with."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from infra.local.temporary import TemporaryFleet

_SHOWN_LINES = 14
_COMMAND_TIMEOUT_S = 120.0


class StoryWentWrong(Exception):
    """Something came out otherwise than the story says; the text is one sentence."""


class Teller:
    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._act = 0

    def act(self, title: str) -> None:
        self._act += 1
        print(f"\n[{self.elapsed_s:5.1f} s] {self._act}. {title}", flush=True)

    def say(self, sentence: str) -> None:
        print(f"    {sentence}", flush=True)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began_s


class Console:
    """Runs commands as a person would, and shows them."""

    def __init__(self, fleet: TemporaryFleet, teller: Teller) -> None:
        self._fleet = fleet
        self._teller = teller

    def run(self, *words: str, refused: bool = False) -> str:
        """Show the command and what it prints. Raises StoryWentWrong unless it ends as expected."""
        self._teller.say(f"$ lorafleet {' '.join(_quoted(word) for word in words)}")
        ended = self._fleet.console(*words, timeout_s=_COMMAND_TIMEOUT_S)
        said = (ended.stdout + ended.stderr).strip()
        lines = said.splitlines()
        for line in lines[:_SHOWN_LINES]:
            self._teller.say(f"  {line}")
        if len(lines) > _SHOWN_LINES:
            self._teller.say(f"  … and {len(lines) - _SHOWN_LINES} lines more")
        if (ended.returncode != 0) is not refused:
            expected = "be refused" if refused else "go through"
            raise StoryWentWrong(f"lorafleet {' '.join(words)} was to {expected} and ended with {ended.returncode}.")
        return said

    def ask(self, *words: str) -> Any:
        """The JSON that a command prints, without showing it."""
        ended = self._fleet.console(*words, "--json", timeout_s=_COMMAND_TIMEOUT_S)
        if ended.returncode != 0:
            raise StoryWentWrong(f"lorafleet {' '.join(words)}: {ended.stderr.strip()}")
        return json.loads(ended.stdout)


def require(holds: bool, sentence: str) -> None:
    """Raises StoryWentWrong."""
    if not holds:
        raise StoryWentWrong(sentence)


def fail(error: StoryWentWrong) -> int:
    sys.stderr.write(f"the story went wrong: {error}\n")
    return 1


def _quoted(word: str) -> str:
    return f'"{word}"' if " " in word else word
