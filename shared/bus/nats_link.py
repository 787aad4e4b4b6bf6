"""One connection to NATS: it comes back by itself, reports what goes wrong, and fails in the bus's own words."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from shared.bus.nats_client import Congested, PromptClient, Take
from shared.bus.nats_errors import Errors, in_words
from shared.bus.port import BusUnavailable, DeadlineExceeded, NoResponders
from shared.contracts.permissions import inbox_prefix

FIRST_CONNECT_S = 5.0
RECONNECT_WAIT_S = 0.2
PING_INTERVAL_S = 1
"""A server that leaves two pings unanswered hangs: after the first, 1 to 2 s, nobody's silence counts any more, before
replicas that cannot be heard over it would count as lost; after the second so does the connection."""
SETTLE_S = 2
CONFIRM_S = 5.0
"""How long the server has to confirm what it stored."""

PENDING_MESSAGES = 1 << 20
PENDING_BYTES = 256 << 20

_log = logging.getLogger(__name__)


class BusOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`user` is the name of the service; `client_name` tells its processes apart in the server's monitoring."""

    url: str
    user: str
    password: str
    client_name: str


class Link:
    """Callers see BusUnavailable from the moment the connection breaks until it is back."""

    def __init__(self, options: BusOptions) -> None:
        self._options = options
        self._client = PromptClient()
        self._errors = Errors(options.user)
        self.connections = 1
        self._watchers: set[Callable[[], None]] = set()
        self._established = False
        self._refused = asyncio.Event()
        self._broken = asyncio.Event()
        """Set when the connection that stands now is lost (the next one has an event of its own): what was asked
        over it gets no answer any more."""

    @property
    def connected(self) -> bool:
        return bool(self._client.is_connected)

    @property
    def hearing(self) -> bool:
        return self.connected and not self._client.silent

    async def open(self) -> None:
        """Raises BusUnavailable with one sentence if there is no connection after a few seconds."""
        connecting = asyncio.create_task(self._connect())
        refused = asyncio.create_task(self._refused.wait())
        await asyncio.wait({connecting, refused}, timeout=FIRST_CONNECT_S, return_when=asyncio.FIRST_COMPLETED)
        refused.cancel()
        if not (connecting.done() and self.connected):
            await self._give_up(connecting)
            where = f"{self._options.url} as {self._options.user}"
            raise BusUnavailable(f"no connection to NATS at {where}: {self._errors.why}")
        self._established = True

    async def close(self) -> None:
        if self.connected:
            try:
                await self._settle()
            except nats.errors.Error:
                _log.warning("closed the bus without the server's word that it got everything")
        self._established = False
        await self._client.close()

    def on_reconnect(self, notify: Callable[[], None]) -> Callable[[], None]:
        """`notify` is called after every reconnect, until the returned function is called."""
        self._watchers.add(notify)
        return lambda: self._watchers.discard(notify)

    def require_connected(self) -> None:
        if not self._client.is_connected:
            raise BusUnavailable(f"the connection to NATS at {self._options.url} is down: {self._errors.last}")

    def new_inbox(self) -> str:
        return str(self._client.new_inbox())

    async def publish(
        self, subject: str, payload: bytes, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Handed to the connection; nothing tells whether the server got it."""
        self.require_connected()
        with _in_our_terms():
            await self._client.publish(subject, payload, reply, headers)

    def send(self, subject: str, payload: bytes, reply: str = "", *, urgent: bool = False) -> None:
        """As `publish`, without a task. Raises ValueError for what is larger than the server takes."""
        self.require_connected()
        try:
            self._client.send(subject, payload, reply, urgent=urgent)
        except Congested:
            raise BusUnavailable(f"NATS at {self._options.url} does not take what it is sent") from None
        except (ConnectionError, RuntimeError) as error:  # the latter is uvloop's word for a connection that has ended
            raise BusUnavailable(in_words(error)) from error

    async def room(self) -> None:
        """Returns when the server takes what it is sent: at once, as a rule."""
        if self._client.stalled:
            with _in_our_terms():
                await self._client.room()

    async def request(
        self, subject: str, payload: bytes, timeout_s: float, headers: dict[str, str] | None = None
    ) -> Msg:
        """Raises NoResponders, DeadlineExceeded (also at once when the connection breaks meanwhile: an answer
        would not find its way), and PermissionError if the server refused the subject."""
        self.require_connected()
        try:
            with _in_our_terms(nats.errors.NoRespondersError, nats.errors.TimeoutError):
                return await self._unless_broken(
                    self._client.request(subject, payload, timeout=timeout_s, headers=headers), subject
                )
        except nats.errors.NoRespondersError:
            raise NoResponders(f"nobody serves {subject}") from None
        except nats.errors.TimeoutError:
            if self._errors.denies(subject):
                raise PermissionError(f"NATS does not let {self._options.user} publish to {subject}") from None
            raise DeadlineExceeded(f"no answer on {subject} within {timeout_s} s") from None

    async def subscribe(
        self,
        subject: str,
        on_message: Callable[[Msg], Awaitable[None]],
        group: str = "",
        take: Take | None = None,
    ) -> Subscription:
        """The server knows of it when this returns. Raises PermissionError if it refuses. With `take` only what the
        server itself has to say comes to `on_message`."""
        self.require_connected()
        self._errors.forgive(subject)
        with _in_our_terms():
            subscription = await self._client.subscribe(
                subject, queue=group, cb=on_message,
                pending_msgs_limit=PENDING_MESSAGES, pending_bytes_limit=PENDING_BYTES,
            )  # fmt: skip
            if take is not None:  # the server was told nothing yet, so that no message can have come before
                self._client.hear(subscription, take)
            await self._settle()
        if self._errors.denies(subject):
            await self.unsubscribe(subscription)
            raise PermissionError(f"NATS does not let {self._options.user} subscribe to {subject}")
        return subscription

    async def unsubscribe(self, subscription: Subscription) -> None:
        """Never fails: a subscription that the server forgot is over too."""
        self._client.hear_no_more(subscription)
        try:
            await subscription.unsubscribe()
        except nats.errors.Error as error:
            _log.debug("unsubscribing from %s: %s", subscription.subject, error)

    async def _unless_broken(self, answer: Coroutine[Any, Any, Msg], subject: str) -> Msg:
        asking, breaking = asyncio.ensure_future(answer), asyncio.ensure_future(self._broken.wait())
        try:
            await asyncio.wait({asking, breaking}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise DeadlineExceeded(f"the connection to NATS broke while {subject} was asked")
            return asking.result()
        finally:
            breaking.cancel()
            if asking.cancel():
                asking.add_done_callback(_forget)

    async def _give_up(self, connecting: asyncio.Task[None]) -> None:
        connecting.cancel()
        [failure] = await asyncio.gather(connecting, return_exceptions=True)
        if isinstance(failure, Exception):
            self._errors.last = in_words(failure)
        else:
            await self._client.close()

    async def _settle(self) -> None:
        """Returns when the server has dealt with everything sent so far.

        The client's flush lets its ping overtake commands that are still queued. They are written by the
        time the first ping is answered, so a second one is behind them.
        """
        await self._client.flush(timeout=SETTLE_S)
        await self._client.flush(timeout=SETTLE_S)

    async def _connect(self) -> None:
        options = self._options
        await self._client.connect(
            options.url, user=options.user, password=options.password, name=options.client_name,
            inbox_prefix=inbox_prefix(options.user), max_reconnect_attempts=-1, reconnect_time_wait=RECONNECT_WAIT_S,  # type: ignore[arg-type]
            ping_interval=PING_INTERVAL_S, error_cb=self._on_error, disconnected_cb=self._on_disconnect,
            reconnected_cb=self._on_reconnect, closed_cb=self._on_closed,
        )  # fmt: skip

    async def _on_error(self, error: Exception) -> None:
        self._errors.note(error, connected=self.connected)
        if self._errors.is_refusal(error) and not self._established:
            self._refused.set()

    async def _on_disconnect(self) -> None:
        broken, self._broken = self._broken, asyncio.Event()
        broken.set()
        if self._established:
            _log.warning("lost the connection to NATS at %s", self._options.url)

    async def _on_reconnect(self) -> None:
        _log.warning("connected to NATS at %s again", self._options.url)
        self.connections += 1
        for notify in list(self._watchers):
            notify()

    async def _on_closed(self) -> None:
        if self._established:
            _log.critical("the connection to NATS ended for good: %s", self._errors.last)


def _forget(asking: asyncio.Future[Msg]) -> None:
    """Whatever became of a question that nobody waits for any more."""
    if not asking.cancelled():
        asking.exception()


@contextmanager
def _in_our_terms(*passing: type[nats.errors.Error]) -> Iterator[None]:
    """A call of the client: what it raises is BusUnavailable, and whoever cancels it has cancelled it.

    The client swallows a cancellation that meets an answer, or that comes while it flushes; a loop that was told
    to end would go on. A RuntimeError is uvloop's word for a connection whose end the client has yet to notice.
    """
    task = asyncio.current_task()
    cancellations = task.cancelling() if task else 0
    try:
        yield
    except passing:
        raise
    except (nats.errors.Error, ConnectionError, RuntimeError) as error:
        raise BusUnavailable(in_words(error)) from error
    if task and task.cancelling() > cancellations:
        raise asyncio.CancelledError


def status_of(message: Msg) -> str:
    """The server's own status code, "" for a message of somebody else."""
    return "" if message.data else header(message, "Status")


def header(message: Msg, name: str) -> str:
    """The value of a header, or nothing."""
    headers: dict[str, str] | None = message.headers
    return headers.get(name, "") if headers else ""
