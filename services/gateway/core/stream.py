"""The life of one request as values: its phases, its state, and what is to be done about it."""

from __future__ import annotations

import math
from enum import StrEnum

import msgspec

from services.gateway.core.refusal import CHAT, AskedBy, Refusal
from shared.messages.generation import Accepted, Finish, TokenChunk, TokenLogprob
from shared.messages.identity import AdapterKey


class Phase(StrEnum):
    CHOOSING = "choosing"
    ASKED = "asked"
    QUEUED = "queued"
    ACCEPTED = "accepted"
    STREAMING = "streaming"
    DONE = "done"


class StreamPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Deadlines: `patience_s` until there is somebody to ask, each time; of one attempt, `queued_s` for a sign of life
    and `accept_s` for the adapter and a place in the engine; `first_token_s` over all attempts; `stall_s` between two
    tokens. `most_attempts` replicas are asked, each once; so many that gave no sign of life do not count, and may be
    asked once more. A stream that breaks has all of this anew, for going on elsewhere; but a request on which
    `most_deaths` replicas were lost is not passed on."""

    patience_s: float = 2.0
    queued_s: float = 1.0
    accept_s: float = 30.0
    first_token_s: float = 60.0
    stall_s: float = 60.0
    most_attempts: int = 3
    most_deaths: int = 2


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """`began_s` is when the request came, or when its stream broke that is to go on elsewhere; `since_s` when its
    phase began or the last token came; `incarnation` the process of the replica that was asked, or that answered;
    `next_position` that of the next token, whoever produces it; `shown` whether a token of this request has left for
    the client; `early` what came before Accepted did; `dead` the replicas that were lost while they worked on it;
    `silent` those that gave no sign of life, and were forgiven; `trouble` why the last attempt came to nothing;
    `due_s` when the client gives up that has no first token, or with `whole` no whole answer; `asked_by` the fields of
    the client's body that hold the prompt and its schema."""

    request_id: str
    began_s: float
    asked_by: AskedBy = CHAT
    adapter: AdapterKey | None = None
    phase: Phase = Phase.CHOOSING
    attempt: int = 0
    replica_id: str = ""
    incarnation: str = ""
    since_s: float = 0.0
    tried: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    next_position: int = 0
    shown: bool = False
    early: tuple[TokenChunk, ...] = ()
    last_refusal: Refusal | None = None
    trouble: str = ""
    due_s: float = math.inf
    whole: bool = False

    @property
    def bus_id(self) -> str:
        """The id of the current attempt on the bus: every attempt has its own, so that what an abandoned
        replica still says is told apart from what the current one says."""
        return f"{self.request_id}-{self.attempt}"


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Nobody can be asked now: choose again a little later."""


class Reroute(msgspec.Struct, frozen=True, kw_only=True):
    """Choose another replica than those tried; then call `chosen`. `cause` is one word for the counter."""

    cause: str
    reason: str


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """Send the request to this replica under this id."""

    replica_id: str
    pool_id: str
    bus_id: str
    attempt: int
    reason: str


class Abandon(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing more is wanted of this attempt. `tell` the replica, if it may still work on it."""

    replica_id: str
    bus_id: str
    tell: bool
    reason: str


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """The response may begin. Comes again if another replica has to begin: a head that has not left names that one."""

    accepted: Accepted


class Deliver(msgspec.Struct, frozen=True, kw_only=True):
    """What the client gets next; `first` is the first thing it gets. `text` is what these tokens complete."""

    text: str
    token_ids: tuple[int, ...]
    first: bool
    finish: Finish | None = None
    logprobs: tuple[TokenLogprob, ...] = ()


class Fail(msgspec.Struct, frozen=True, kw_only=True):
    """End with this refusal: as a status before Open, as an error event after it."""

    refusal: Refusal


Action = Wait | Reroute | Ask | Abandon | Open | Deliver | Fail
Step = tuple[Stream, tuple[Action, ...]]
