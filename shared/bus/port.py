"""What a service may do on the bus. Everything is said through a Channel of the catalog.

Every coroutine here may raise BusUnavailable, and does so at once while there is no connection: nothing
was sent then and the call is safe to repeat. What the bus stores (an EVENT, a STATE value) and does not
confirm in time is BusUnavailable, too; it may have been stored, so repeat an EVENT with its `message_id`.
PermissionError means that the catalog does not name this service as writer or reader; ValueError an id
that is no subject token, a message above MAX_MESSAGE_BYTES, or a channel of another kind.

Handlers of one subscription run one after another, in order of arrival; a handler that raises is logged
by the bus and the subscription goes on. Messages that do not decode are logged and dropped (an EVENT is
terminated, not redelivered, unless its consumer asks to see it; the asker of an RPC gets AskFailed).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from shared.contracts.channel import Channel

M = TypeVar("M")
R = TypeVar("R")

Ids = tuple[str, ...]
OnMessage = Callable[[M, Ids], Awaitable[None]]
"""Called with the message and the ids in its subject."""
OnHeard = Callable[[M, Ids], None]
"""The same, and waits for nothing."""
OnUnanswered = Callable[[Ids], Awaitable[None]] | None
"""Called with the ids of a REPLY subject whose question met no responders."""
OnUnheard = Callable[[Ids], None] | None
"""The same, and waits for nothing."""
OnUndecodable = Callable[[bytes, str], Awaitable[None]]
"""Called with the bytes of what is no message of the channel, and why it is none."""


class BusUnavailable(Exception):
    """The bus cannot be reached, or did not confirm in time."""


class NoResponders(Exception):
    """Nobody serves this subject right now."""


class DeadlineExceeded(Exception):
    """The question was sent and not answered in time; whether it was acted upon is unknown."""


class AskFailed(Exception):
    """The other side answered that it failed; the message is its sentence."""


class RevisionConflict(Exception):
    """The key changed since `expected_revision`; nothing was written."""


class Change(msgspec.Struct, Generic[M], frozen=True, kw_only=True):
    """A key's new value, or None after a delete. Revisions of one bucket only grow."""

    ids: Ids
    value: M | None
    revision: int


class Subscription(Protocol):
    async def close(self) -> None:
        """No handler call starts from here on; a running one has a second to finish and is cancelled then
        (its EVENT goes to another consumer). A handler may close its own subscription. Idempotent."""


class StateStore(Protocol[M]):
    """The key-value bucket of one STATE channel."""

    async def put(self, value: M, *ids: str, expected_revision: int | None = None) -> int:
        """Returns the new revision. `expected_revision` 0 means "only if the key does not exist".
        Raises RevisionConflict."""

    async def get(self, *ids: str) -> Change[M] | None:
        """The current value, or None if there is none."""

    async def delete(self, *ids: str, expected_revision: int | None = None) -> None:
        """Readers see a Change with value None. Deleting what is not there is no error. With `expected_revision`
        only the value of that revision is deleted; raises RevisionConflict if the key has changed since."""

    async def entries(self) -> list[Change[M]]:
        """Every key that has a value now."""

    async def watch(self, on_change: Callable[[Change[M]], Awaitable[None]], *ids: str) -> Subscription:
        """Follow the bucket; leading ids narrow it (the rest match anything).

        Returns once `on_change` has been called with every value that existed, so the caller's view is
        full from then on. After a reconnect all values are told again, and keys that vanished meanwhile
        come as None: `on_change` must not mind repetition.
        """


class Bus(Protocol):
    @property
    def connected(self) -> bool: ...

    @property
    def hearing(self) -> bool:
        """Whether it is connected to a server that answers. If not, that somebody is silent says nothing of them."""

    @property
    def connections(self) -> int:
        """How many there were so far, the present one included. Live messages between two of them are lost."""

    async def close(self) -> None:
        """Send what is buffered, end every subscription. Idempotent."""

    async def publish(
        self,
        channel: Channel[M, Any],
        message: M,
        *ids: str,
        message_id: str | None = None,
        answer_to: str | None = None,
    ) -> None:
        """EVENT: returns once the stream has stored it; a repeated `message_id` is stored once
        (within two minutes).
        TELEMETRY, REPLY: fire and forget. RPC: send without waiting; answers, and the bus's own
        "no responders", go to the subject `answer_to`."""

    def send(self, channel: Channel[M, Any], message: M, *ids: str, answer_to: str | None = None) -> None:
        """As `publish` of a TELEMETRY, REPLY or RPC, for what is urgent and for those who cannot wait. Raises
        BusUnavailable also if the bus takes nothing; `publish` waits meanwhile."""

    async def subscribe(
        self, channel: Channel[M, Any], on_message: OnMessage[M], *ids: str, on_unanswered: OnUnanswered = None
    ) -> Subscription:
        """Live messages of a TELEMETRY, REPLY or RPC channel; leading ids narrow it, the rest match
        anything. Whatever is published after this returns arrives."""

    async def hear(
        self, channel: Channel[M, Any], on_message: OnHeard[M], *ids: str, on_unanswered: OnUnheard = None
    ) -> Subscription:
        """As `subscribe`, for handlers that wait for nothing and are soon over: they are called while the bus is read,
        which costs no turn of the loop."""

    async def consume(
        self,
        channel: Channel[M, Any],
        durable: str,
        on_message: OnMessage[M],
        *,
        on_undecodable: OnUndecodable | None = None,
        only_new: bool = False,
    ) -> Subscription:
        """An EVENT channel through a durable consumer, shared by all who name the same `durable`; a new
        one starts with the oldest fact. Of a FanOut.POOL reader the durable is its service's name.

        With `only_new` a new durable starts with what is published after this returns, and the bus forgets it
        soon after its last user left; one that was forgotten during a long outage begins anew, with a gap.

        A message is acknowledged when its handler returns; after an exception it comes again (with a
        growing delay). Delivery is at least once: handlers are idempotent. The same holds for what does not
        decode and `on_undecodable`; without that it is logged and never comes again.
        """

    async def ask(self, channel: Channel[M, R], message: M, *ids: str, timeout_s: float) -> R:
        """Raises NoResponders, DeadlineExceeded, AskFailed."""

    async def serve(self, channel: Channel[M, R], on_ask: Callable[[M, Ids], Awaitable[R]], *ids: str) -> Subscription:
        """Answer an RPC channel. Questions run concurrently. An exception reaches the asker as AskFailed
        with its text. FanOut.POOL channels share the questions among their servers."""

    def state(self, channel: Channel[M, Any]) -> StateStore[M]:
        """The bucket of a STATE channel."""
