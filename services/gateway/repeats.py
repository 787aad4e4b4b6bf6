"""Questions that are put to their replicas once more, since what these said of them may be lost with a connection."""

from __future__ import annotations

from collections.abc import Iterable

from services.gateway.conversation import Conversation, Desk
from services.gateway.core import streams
from services.gateway.core.refusal import Refusal
from services.gateway.core.stream import Ask, Phase


class Repeats:
    """Tokens are numbered and asked for again; the one word before them, accepted or refused, is not. So the whole
    question goes again under the id that it had: a replica that has it says its word once more, and one that dropped it
    meanwhile begins anew."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._connections = desk.post.connections
        self._unheard: list[Conversation] = []

    def unheard(self, conversation: Conversation) -> bool:
        """Nobody serves what it was asked. Whether that is no news, since its replica has it already and is just not
        back on the bus yet: it is asked again a little later."""
        if conversation.stream.phase is not Phase.QUEUED:
            return False
        self._unheard.append(conversation)
        return True

    def tick(self, live: Iterable[Conversation]) -> None:
        due, self._unheard = self._unheard, []
        if self._connections != self._desk.post.connections:
            self._connections = self._desk.post.connections
            due = list(live)
        for conversation in due:
            if conversation.stream.phase is Phase.QUEUED:
                self._repeat(conversation)

    def _repeat(self, conversation: Conversation) -> None:
        stream, record = conversation.stream, conversation.record
        conversation.stream = streams.asked_again(stream, self._desk.clock.now_s())
        ask = Ask(
            replica_id=stream.replica_id, pool_id=record.pool_id, bus_id=stream.bus_id, attempt=record.attempts - 1,
            reason=record.reason,
        )  # fmt: skip

        def on_failed(why: Refusal) -> None:
            self._unheard.append(conversation)

        self._desk.post.generate(conversation.request(ask, self._desk), ask.replica_id, on_failed)
