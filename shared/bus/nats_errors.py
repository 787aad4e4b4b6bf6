"""What NATS complains about, made visible: its client tells most of it only to a callback."""

from __future__ import annotations

import logging
import os
import re
import time

import nats.errors

_DENIED = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"')
_BETWEEN_DROP_REPORTS_S = 1.0

_log = logging.getLogger(__name__)


class Errors:
    """The errors of one user's connection."""

    def __init__(self, user: str) -> None:
        self.last = "it did not answer"
        self._refusal = ""
        self._user = user
        self._denied: set[str] = set()
        self._drops = 0
        self._reported_s = float("-inf")

    def note(self, error: Exception, *, connected: bool) -> None:
        self.last = in_words(error)
        if self.is_refusal(error):
            self._refusal = self.last
        denied = _DENIED.search(self.last)
        if denied:
            self._denied.add(denied.group(2))
            _log.error("NATS refused %s: %s to %s", self._user, denied.group(1), denied.group(2))
        elif isinstance(error, nats.errors.SlowConsumerError):
            self._report_drop(error.subject)
        elif connected and not isinstance(error, nats.errors.UnexpectedEOF):
            _log.error("NATS: %s", self.last)
        else:
            _log.debug("NATS: %s", self.last)

    @property
    def why(self) -> str:
        """Why there is no connection: a refusal, whatever the client met when it tried again, else the last error."""
        return self._refusal or self.last

    def is_refusal(self, error: Exception) -> bool:
        """Whether the server does not let this user in."""
        return "authorization" in in_words(error).lower()

    def denies(self, subject: str) -> bool:
        """The client lowers the case of what the server says."""
        return subject.lower() in self._denied

    def forgive(self, subject: str) -> None:
        self._denied.discard(subject.lower())

    def _report_drop(self, subject: str) -> None:
        """At most one line a second: a flood of lines would make a slow process slower."""
        self._drops += 1
        if time.monotonic() - self._reported_s >= _BETWEEN_DROP_REPORTS_S:
            _log.error("too slow for what comes in: dropped %d messages, the last one on %s", self._drops, subject)
            self._reported_s, self._drops = time.monotonic(), 0


def in_words(error: Exception) -> str:
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)
    return str(error).removeprefix("nats: ") or type(error).__name__
