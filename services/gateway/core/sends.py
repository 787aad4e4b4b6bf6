"""What one replica was asked to do since it last said how much it has to do."""

from __future__ import annotations

from collections.abc import Callable


def _nobody() -> None:
    """Told of every change, and does not care."""


class Sends:
    """What this gateway has sent to one replica and the replica's last report does not count yet.

    A request that the replica has answered is in its next report, because both travel in order; one that
    ends after a report is in it still, and is taken off until the next. `on_change` is called after whatever may
    have changed a sum.
    """

    def __init__(self, on_change: Callable[[], None] = _nobody) -> None:
        self._on_change = on_change
        self._unseen: dict[str, int] = {}
        self._answered: dict[str, int] = {}
        self._reported: dict[str, int] = {}
        self._ended_tokens = 0
        self._ended = 0
        self.promised_tokens = 0
        """Sent and in no report yet."""
        self.ever = 0
        """Requests sent so far."""

    def sent(self, request_id: str, tokens: int) -> None:
        self._unseen[request_id] = tokens
        self.promised_tokens += tokens
        self.ever += 1
        self._on_change()

    def answered(self, request_id: str) -> None:
        if (tokens := self._unseen.pop(request_id, None)) is not None:
            self._answered[request_id] = tokens

    def ended(self, request_id: str) -> None:
        tokens = self._unseen.pop(request_id, None)
        if tokens is None:
            tokens = self._answered.pop(request_id, None)
        if tokens is not None:
            self.promised_tokens -= tokens
        elif (reported := self._reported.pop(request_id, None)) is not None:
            self._ended_tokens += reported
            self._ended += 1
        self._on_change()

    def reported(self) -> None:
        self.promised_tokens -= sum(self._answered.values())
        self._reported.update(self._answered)
        self._answered = {}
        self._ended_tokens = self._ended = 0
        self._on_change()

    @property
    def tokens(self) -> int:
        """To be added to the report; negative if more ended than began."""
        return self.promised_tokens - self._ended_tokens

    @property
    def requests(self) -> int:
        return len(self._unseen) + len(self._answered) - self._ended
