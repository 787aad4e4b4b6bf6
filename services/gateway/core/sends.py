"""What one replica was asked to do since it last said how much it has to do."""

from __future__ import annotations


class Sends:
    """What this gateway has sent to one replica and the replica's last report does not count yet.

    A request that the replica has answered is in its next report, because both travel in order; one that
    ends after a report is in it still, and is taken off until the next.
    """

    def __init__(self) -> None:
        self._unseen: dict[str, int] = {}
        self._answered: dict[str, int] = {}
        self._reported: dict[str, int] = {}
        self._ended_tokens = 0
        self._ended = 0

    def sent(self, request_id: str, tokens: int) -> None:
        self._unseen[request_id] = tokens

    def answered(self, request_id: str) -> None:
        if (tokens := self._unseen.pop(request_id, None)) is not None:
            self._answered[request_id] = tokens

    def ended(self, request_id: str) -> None:
        if self._unseen.pop(request_id, None) is None and self._answered.pop(request_id, None) is None:
            tokens = self._reported.pop(request_id, None)
            self._ended_tokens += tokens or 0
            self._ended += tokens is not None

    def reported(self) -> None:
        self._reported.update(self._answered)
        self._answered = {}
        self._ended_tokens = self._ended = 0

    @property
    def tokens(self) -> int:
        """To be added to the report; negative if more ended than began."""
        return sum(self._unseen.values()) + sum(self._answered.values()) - self._ended_tokens

    @property
    def requests(self) -> int:
        return len(self._unseen) + len(self._answered) - self._ended

    @property
    def promised_tokens(self) -> int:
        """Sent and in no report yet."""
        return sum(self._unseen.values()) + sum(self._answered.values())
