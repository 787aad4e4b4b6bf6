"""From the token ids of one answer to the text that its client is sent."""

from __future__ import annotations

from collections.abc import Sequence

from services.replica_worker.text.detokenizer import REPLACEMENT
from services.replica_worker.text.stop import StopStrings
from services.replica_worker.text.tokenizer import Tokenizer


class AnswerText:
    """Whole characters only, and nothing from a stop string on."""

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str], produced: Sequence[int] = ()) -> None:
        """`produced` was sent by another replica: it is read again, so that what that one held back is
        held back here, and is not sent twice. Raises ValueError for an empty stop string."""
        self._detokenizer = tokenizer.detokenizer()
        self._stop = StopStrings(stop)
        for token_id in produced:
            self.push(token_id)

    @property
    def stopped(self) -> bool:
        return self._stop.stopped

    def push(self, token_id: int) -> str:
        return self._stop.push(self._detokenizer.push(token_id))

    def flush(self) -> str:
        """What was held back. Half a character cannot become whole any more and is left out."""
        text = self._stop.push(self._detokenizer.flush().rstrip(REPLACEMENT))
        return text if self._stop.stopped else text + self._stop.flush()
