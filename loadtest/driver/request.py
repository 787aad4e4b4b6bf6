"""One request, from the moment when it is due to the end of its answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from loadtest.driver.answer import CUT_OFF, OK, Answer
from loadtest.driver.connection import Connection
from loadtest.driver.planned import Planned
from loadtest.driver.pool import Pool
from loadtest.driver.seen import Seen

TIMEOUT = "timeout"
NO_CONNECTION = "no connection"

Content = Callable[[str, Answer], str]
"""Of an alias and its answer: in a word whose marker it carries."""


class Run(Protocol):
    """What requests belong to. `ended` hears of each once; `began_s` is by time.monotonic()."""

    pool: Pool
    began_s: float
    content: Content | None

    def ended(self, request: Request, seen: Seen) -> None: ...


class Request:
    """A request from the moment when it is due to the end of its answer."""

    __slots__ = ("_again", "_connection", "_run", "_sent_s", "_why", "_written", "answer", "planned")

    def __init__(self, run: Run, planned: Planned, written: bytes) -> None:
        self.planned = planned
        self.answer = Answer(keep_text=run.content is not None)
        self._run = run
        self._written = written
        self._connection: Connection | None = None
        self._sent_s: float | None = None
        self._again = False
        self._why = ""

    def given(self, connection: Connection) -> None:
        self._connection = connection
        self._sent_s = self._sent_s or time.monotonic()
        connection.ask(self._written, self.answer, self.ended)

    def denied(self, reason: str) -> None:
        self._tell(NO_CONNECTION, reason)

    def give_up(self, why: str) -> None:
        self._why = why
        if self._connection is None:
            self._run.pool.drop(self)
            self._tell(why, "")
        else:
            self._connection.close()

    def ended(self, outcome: str, reason: str) -> None:
        """A connection that the server closes just as it is used again says nothing about the request: once more."""
        kept = self._connection is not None and self._connection.answers > 0
        self._connection = None
        if self._why:
            self._tell(self._why, "")
        elif outcome == CUT_OFF and kept and not self.answer.begun and not self._again:
            self._again = True
            self._run.pool.want_fresh(self)
        else:
            self._tell(outcome, reason)

    def _tell(self, outcome: str, reason: str) -> None:
        began_s, now_s, answer = self._run.began_s, time.monotonic(), self.answer
        due_s, times_s = began_s + self.planned.at_s, answer.events.times_s
        tokens = answer.usage.completion_tokens or answer.events.pieces
        look = self._run.content if outcome == OK else None
        seen = Seen(
            at_s=self.planned.at_s,
            alias=self.planned.alias,
            outcome=outcome,
            reason=reason,
            tier=answer.header("x-adapter-tier"),
            delay_s=(self._sent_s or now_s) - due_s,
            ttft_s=times_s[0] - due_s if times_s else None,
            tpot_s=(times_s[-1] - times_s[0]) / (tokens - 1) if times_s and tokens > 1 else None,
            e2el_s=now_s - due_s,
            prompt_tokens=answer.usage.prompt_tokens,
            tokens=tokens,
            content=look(self.planned.alias, answer) if look is not None else "",
        )
        self._run.ended(self, seen)
