"""One channel: a subject, what it carries, who may write and who reads, and what delivery promises."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Generic, TypeVar

M = TypeVar("M")
R = TypeVar("R")

PREFIX = "lf.v1"

_TOKEN = re.compile(r"[^. *>\t\r\n\0]+")


class Kind(StrEnum):
    """The delivery promise; it is the third token of every subject."""

    EVENT = "evt"
    """A fact: at least once, replayable, deduplicated by message id."""
    STATE = "kv"
    """Desired state: the last value of a key wins; watched; compare-and-set by revision."""
    TELEMETRY = "tel"
    """A full snapshot: at most once, the next one heals."""
    RPC = "rpc"
    """Asked; answered or failed by a deadline."""
    REPLY = "reply"
    """Addressed to one gateway; the subject names the request or the replica."""


class Service(StrEnum):
    """Everyone who has a user of their own on the bus."""

    GATEWAY = "gateway"
    REGISTRY = "registry"
    PLACEMENT = "placement"
    AUTOSCALER = "autoscaler"
    WORKER = "replica_worker"
    CONSOLE = "console"
    PIPELINE = "pipeline"


class FanOut(StrEnum):
    """Who of a service's processes gets a message."""

    POOL = "pool"
    """One of them: a queue group, or a shared durable consumer."""
    EACH = "each"
    """Every one."""
    OWNER = "owner"
    """The one that the subject names."""


class Stream(StrEnum):
    """Where an EVENT is kept. What comes with every request would push out a week of other facts."""

    EVENTS = "LF_EVENTS"
    USAGE = "LF_USAGE"


class Codec(StrEnum):
    JSON = "json"
    """Control messages: readable with any NATS client."""
    MSGPACK = "msgpack"
    """The token path."""


@dataclass(frozen=True, kw_only=True)
class Reader:
    service: Service
    fan_out: FanOut


@dataclass(frozen=True, kw_only=True)
class Channel(Generic[M, R]):
    """`params` are the ids that complete the subject (for STATE: the key), in order.

    `message` may be a union of tagged structs. `reply` is what an RPC answers.
    """

    name: str
    kind: Kind
    message: type[M]
    summary: str
    writers: tuple[Service, ...]
    readers: tuple[Reader, ...]
    params: tuple[str, ...] = ()
    reply: type[R] | None = None
    codec: Codec = Codec.JSON
    infix: str = ""
    """Of a REPLY: the token between the gateway's id and the other id."""
    dedup: str = ""
    """Of an EVENT: what its message id is made of, in words."""
    stream: Stream = Stream.EVENTS
    """Of an EVENT: where it is kept."""

    def subject(self, *ids: str) -> str:
        """The subject for these ids. Raises ValueError for a wrong number of them, or an id that is
        more than one token: customers' names must be hashed before they come here."""
        if len(ids) != len(self.params):
            raise ValueError(f"channel {self.name} needs {self.params}, got {len(ids)} ids")
        self._require_tokens(ids)
        return self._form % ids

    def pattern(self, *ids: str) -> str:
        """The subject that matches these leading ids and anything for the rest. Raises ValueError."""
        if len(ids) > len(self.params):
            raise ValueError(f"channel {self.name} has {self.params}, got {len(ids)} ids")
        self._require_tokens(ids)
        return self._form % (ids + ("*",) * (len(self.params) - len(ids)))

    def ids_of(self, subject: str) -> tuple[str, ...]:
        """The ids in a subject of this channel, in the order of `params`."""
        if not self.params:
            return ()
        tokens = subject[len(self.stem) + 1 :].split(".")
        return (tokens[0], *tokens[2:]) if self.infix else tuple(tokens)

    @cached_property
    def stem(self) -> str:
        """The subject before its ids. Replies start with the gateway: `lf.v1.reply.{gateway}.{infix}.{id}`."""
        stem = f"{PREFIX}.{self.kind.value}"
        return stem if self.kind is Kind.REPLY else f"{stem}.{self.name}"

    @property
    def wildcard(self) -> str:
        """The subject that matches this channel whatever the ids."""
        return self.pattern()

    @property
    def bucket(self) -> str:
        """Of a STATE channel: its key-value bucket."""
        return "lf_v1_" + self.name.replace(".", "_")

    @cached_property
    def _form(self) -> str:
        """A subject with a gap for each id: subjects are made for every message."""
        gaps = ["%s" for _ in self.params]
        tokens = (gaps[0], self.infix, *gaps[1:]) if self.infix else gaps
        return ".".join((self.stem, *tokens))

    def _require_tokens(self, ids: tuple[str, ...]) -> None:
        for at, token in enumerate(ids):
            if _TOKEN.fullmatch(token) is None:
                raise ValueError(f"{self.params[at]} of channel {self.name} must be one subject token, not {token!r}")
