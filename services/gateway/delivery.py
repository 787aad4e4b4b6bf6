"""What comes of an answer: its pieces go to the client, and into what is recorded of it."""

from __future__ import annotations

from services.gateway.conversation import Conversation
from services.gateway.core.refusal import Refusal
from services.gateway.core.stream import Deliver, Phase
from services.gateway.records import Records, outcome_of
from shared.messages.generation import Accepted, TokenChunk
from shared.runtime.clock import Clock


class Delivery:
    def __init__(self, records: Records, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    def open(self, conversation: Conversation, accepted: Accepted) -> None:
        self._records.accepted(conversation.record, accepted)
        conversation.outlet.open(accepted)

    def go_on(self, conversation: Conversation, chunk: TokenChunk, now_s: float) -> None:
        """As `deliver`, of a token that is neither the first nor the last."""
        text = Deliver(text=chunk.text, token_ids=chunk.token_ids, first=False, logprobs=chunk.logprobs)
        conversation.outlet.put(text)
        conversation.transcript.add(chunk.token_ids, chunk.text)
        self._records.delivered(conversation.record, len(chunk.token_ids), now_s)

    def deliver(self, conversation: Conversation, deliver: Deliver) -> None:
        """It is counted when it is on its way: a first token is written to its client at once."""
        conversation.outlet.put(deliver)
        conversation.transcript.add(deliver.token_ids, deliver.text)
        record, now_s = conversation.record, self._clock.now_s()
        if record.ttft_s is None:
            self._records.first_token(record, now_s)
        self._records.delivered(record, len(deliver.token_ids), now_s)
        if deliver.finish is not None:
            self._records.finished(record, deliver.finish)
            self._end(conversation, deliver.finish.reason)

    def fail(self, conversation: Conversation, refusal: Refusal) -> None:
        conversation.outlet.fail(refusal)
        self._records.failed(conversation.record, refusal)
        self._end(conversation, outcome_of(refusal))

    def _end(self, conversation: Conversation, outcome: str) -> None:
        assert conversation.stream.phase is Phase.DONE, "only the last action ends a request"
        conversation.record.outcome = outcome
        self._records.streams.dec()
        self._records.ended(conversation.record, self._clock)
        conversation.end_span(self._clock)
