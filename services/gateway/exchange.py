"""One request that was let in, as the HTTP door holds it in its hand: one conversation for each answer."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from services.gateway.conversation import Conversation
from services.gateway.conversations import Conversations
from services.gateway.core.completion import Heading
from services.gateway.core.wish import Wish
from services.gateway.io.outlet import Outlet
from services.gateway.io.sheaf import Sheaf, Strand


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What stands around the answer. `limits` are headers that say what is left of the caller's."""

    heading: Heading
    adapter_id: str
    tool_parser: str
    limits: Mapping[str, str]


class Admitted:
    """`sinks` has a place for the tokens of each answer. Of several, all are dropped when one fails. Nobody needs the
    `terms` before the replicas were asked."""

    terms: Terms

    def __init__(self, conversations: Conversations, wish: Wish) -> None:
        self._conversations = conversations
        self._begun: list[Conversation] = []
        self.outlet: Outlet | Sheaf
        self.sinks: tuple[Outlet | Strand, ...]
        waits = wish.timeout_s is not None  # what ends before its first token is a status then, and no broken stream
        if wish.choices == 1:
            self.outlet = outlet = Outlet(streaming=wish.stream, patient=waits)
            self.sinks = (outlet,)
        else:
            self.outlet = sheaf = Sheaf(wish.choices, self._drop, streaming=wish.stream, patient=waits)
            self.sinks = sheaf.strands

    @property
    def heading(self) -> Heading:
        return self.terms.heading

    @property
    def adapter_id(self) -> str:
        return self.terms.adapter_id

    @property
    def tool_parser(self) -> str:
        return self.terms.tool_parser

    @property
    def limits(self) -> Mapping[str, str]:
        return self.terms.limits

    def begin(self, conversation: Conversation) -> None:
        self._begun.append(conversation)
        self._conversations.begin(conversation)
        if isinstance(self.outlet, Sheaf) and (failure := self.outlet.failure) is not None:
            self._conversations.drop(conversation, failure.message)

    def leave(self, reason: str) -> None:
        """Nobody reads any more. Idempotent."""
        if isinstance(self.outlet, Sheaf):
            self.outlet.close()
        for conversation in self._begun:
            self._conversations.leave(conversation, reason)

    def _drop(self, reason: str) -> None:
        for conversation in self._begun:
            self._conversations.drop(conversation, reason)
