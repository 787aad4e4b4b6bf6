"""What the dispatcher decides upon, and what it decides."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from services.replica_worker.core.slot import Place
from shared.messages.identity import AdapterKey


class DispatchPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens are counted per weight, as the counters are."""

    age_bound_s: float = 1.0
    """An adapter that was passed over for so long is next."""
    window_tokens: float = 512.0
    """Customers whose counters are this close to the smallest are served in the order that spares loads."""
    debt_tokens: float = 8192.0
    """How far ahead of the smallest counter age may still carry a customer. Without an end to it, a flood over many
    adapters would turn fair shares into first come, first served."""
    loads_at_once: int = 2
    """One is copied while the next one is fetched."""
    quantum_s: float = 0.25
    """So long an adapter keeps its slot from those whose first token is still to come: several times what a load and
    its first step cost, so that most of the time goes into tokens."""
    round_s: float = 1.0
    """So long it keeps it from those who were paused; and after so long a paused request is next. The longest gap
    in an answer is about this, as paused adapters are no more than there are slots."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A request whose turn has not come. `tokens`: what it is charged as it starts, its prompt. `passed_over_since_s`:
    its arrival, or the last turn of another request of the same adapter. `paused`: its answer has begun and stands
    still, since then."""

    request_id: str
    tenant_id: str
    key: AdapterKey | None
    tokens: int
    passed_over_since_s: float
    paused: bool = False


class Share(msgspec.Struct, frozen=True):
    """A customer's virtual counter and its weight."""

    counter: float
    weight: float


class DispatchView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything at one moment; `waiting` in the order of arrival, `shares` of every tenant in it or in `pausable`.

    `operation_since_s`: since when an operation waits for a slot that it does not have; those take theirs elsewhere,
    but a slot must be closed for them too, and its requests paused. `pausable`: slots whose requests could all be
    paused now, and whose they are.
    """

    now_s: float
    free_rows: int
    loads_in_flight: int
    places: tuple[Place, ...]
    waiting: tuple[Waiting, ...]
    shares: Mapping[str, Share]
    operation_since_s: float | None = None
    pausable: Mapping[int, frozenset[str]] = {}


class Start(msgspec.Struct, frozen=True, kw_only=True):
    request_id: str
    reason: str


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """Take all requests off this slot, for a load of the same decision or for an operation; they wait, and go on where
    they stopped."""

    slot: int
    reason: str


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Load `key` into `slot`, which is empty or idle, or becomes idle by a pause of the same decision."""

    key: AdapterKey
    slot: int
    reason: str


class Dispatch(msgspec.Struct, frozen=True, kw_only=True):
    """What to do now, in the order of the fields. `closed` is the one slot that shall take no new request; None: all
    are open. `waits` counts those who go on waiting by what they wait for: "row", "load" or "slot"."""

    start: tuple[Start, ...]
    pause: tuple[Pause, ...]
    load: tuple[Load, ...]
    closed: int | None
    closed_reason: str
    waits: Mapping[str, int]
