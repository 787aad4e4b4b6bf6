"""From the token ids of one answer to the text that its client is sent."""

from __future__ import annotations

from collections.abc import Sequence

from services.replica_worker.engine.shaping import Logprobs
from services.replica_worker.text.detokenizer import REPLACEMENT
from services.replica_worker.text.stop import StopStrings
from services.replica_worker.text.tokenizer import Tokenizer
from shared.messages.generation import TokenLogprob, TopToken


class AnswerText:
    """Whole characters only, and nothing from a stop string on."""

    def __init__(
        self, tokenizer: Tokenizer, stop: Sequence[str], produced: Sequence[int] = (), sent_chars: int | None = None
    ) -> None:
        """`produced` came from another replica, and `sent_chars` characters of its text are with the client (None:
        as many as would have been sent here): it is read again, so that what that one held back is held back
        here or sent now, and nothing is sent twice. Raises ValueError for an empty stop string."""
        self._tokenizer = tokenizer
        self._detokenizer = tokenizer.detokenizer()
        self._stop = StopStrings(stop)
        read = "".join(self._read(token_id) for token_id in produced)
        known = len(read) if sent_chars is None else sent_chars
        self._owed = read[known:]
        self._known = max(0, known - len(read))

    @property
    def stopped(self) -> bool:
        return self._stop.stopped

    def push(self, token_id: int) -> str:
        return self._unsent(self._read(token_id))

    def flush(self) -> str:
        """What was held back. Half a character cannot become whole any more and is left out."""
        text = self._stop.push(self._detokenizer.flush().rstrip(REPLACEMENT))
        return self._unsent(text if self._stop.stopped else text + self._stop.flush())

    def logprob(self, token_id: int, told: Logprobs) -> TokenLogprob:
        """What the engine tells of a token, with the bytes of every token that it names."""
        raw = self._tokenizer.token_bytes
        pairs = zip(told.token_ids, told.of_token_ids, strict=True)
        return TokenLogprob(token_id, raw(token_id), told.chosen, tuple(TopToken(id_, raw(id_), p) for id_, p in pairs))

    def _read(self, token_id: int) -> str:
        return self._stop.push(self._detokenizer.push(token_id))

    def _unsent(self, text: str) -> str:
        """With what is still owed of the text before it, and without what the client has of it."""
        text, self._owed = self._owed + text, ""
        skipped = min(self._known, len(text))
        self._known -= skipped
        return text[skipped:]
