"""One request from a gateway to a replica, and its tokens on the way back.

Identity travels as adapter id and digest, never as an alias. Everything that replaying a lost frame or
continuing on another replica needs is here from the start: token ids, positions, seed, frame numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`tool_calls` is the JSON text of the calls that an assistant's message asked for, as OpenAI writes them; a
    tool's message names the call that it answers."""

    role: str
    content: str
    name: str | None = None
    tool_calls: str = ""
    tool_call_id: str = ""


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """`seed` is always set (the gateway draws one if the client did not), so that a continuation on
    another replica samples the same stream. `max_tokens` None means "up to the context's end".

    The penalties are OpenAI's: subtracted from a token's logit, once for having been produced (`presence_penalty`)
    and for each time that it was (`frequency_penalty`). `logit_bias` is what is added to the logit of each
    token id. `top_logprobs` None: no log probabilities are wanted; otherwise how many alternatives beside the sampled
    token's own. `json_schema` is the JSON text of a schema that the answer must follow; "": any text."""

    seed: int
    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = msgspec.field(default_factory=dict)
    top_logprobs: int | None = None
    json_schema: str = ""


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`adapter_id` None means the base model itself. `produced_token_ids` are tokens that the client
    already has from another replica, and `produced_text_chars` how many characters of text it was sent with
    them: that one may have held more of it back, or less; None: as much as this replica would have sent. All
    counts and positions are of the whole answer. `attempt` counts replicas that were tried before this one.

    `messages` go through the base's chat template, with `tools` (JSON text of OpenAI's list; "": none). Without
    messages, `prompt` is text to go on with as it stands, or `prompt_token_ids` are."""

    request_id: str
    gateway_id: str
    tenant_id: str
    pool_id: str
    base_model_hash: str
    messages: tuple[ChatMessage, ...]
    sampling: Sampling
    adapter_id: str | None = None
    digest: str | None = None
    produced_token_ids: tuple[int, ...] = ()
    produced_text_chars: int | None = None
    attempt: int = 0
    deadline_s: float = 60.0
    """Seconds from receipt within which the first token must come."""
    objective_s: float = 0.0
    """Seconds from receipt within which it should: a replica that is too busy for that refuses at once; 0: any wait up
    to the deadline will do."""
    cache_salt: str = ""
    tools: str = ""
    prompt: str | None = None
    prompt_token_ids: tuple[int, ...] = ()
    traceparent: str = ""
    """Of the gateway's span, by W3C's Trace Context; "": this request is not traced."""


class Queued(msgspec.Struct, frozen=True, kw_only=True, tag="queued"):
    """At once on receipt: the replica is alive and has the request."""

    request_id: str
    replica_id: str
    incarnation: str


class Accepted(msgspec.Struct, frozen=True, kw_only=True, tag="accepted"):
    """The adapter is resident and the request is in the engine. `tier` is where it was found on arrival."""

    request_id: str
    replica_id: str
    incarnation: str
    tier: str
    prompt_tokens: int
    seed: int
    adapter_id: str | None = None
    digest: str | None = None
    cached_tokens: int = 0


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """The replica will not run it. `code` is one of REFUSALS; `elsewhere` says whether another replica
    of the pool may be asked; `retry_after_s` is honest or None. `about` is the field at fault, of GenerateRequest or of
    its sampling, with "prompt" for all that makes one; "": not said."""

    request_id: str
    replica_id: str
    code: str
    message: str
    elsewhere: bool
    retry_after_s: float | None = None
    about: str = ""


REFUSALS = (
    "not_ready", "draining", "overloaded", "adapter_unavailable", "adapter_failed", "wrong_pool",
    "context_length_exceeded", "invalid_request", "deadline",
)  # fmt: skip

Answer = Queued | Accepted | Refused


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


class Finish(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`reason`: "stop", "length", "error" (the replica failed; `error` is one sentence) or "cancelled" (nobody wanted
    it any more, or the replica goes on with nothing, and `error` says why: another one may)."""

    reason: str
    usage: Usage
    error: str | None = None


class TopToken(msgspec.Struct, frozen=True, array_like=True):
    """One of the likeliest tokens at a place. `raw` are its UTF-8 bytes, perhaps of a part of a character."""

    token_id: int
    raw: bytes
    logprob: float


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """Natural logarithms of probabilities after penalties and bias, before temperature and top_p. `top` is sorted,
    the likeliest first, and need not hold the sampled token."""

    token_id: int
    raw: bytes
    logprob: float
    top: tuple[TopToken, ...] = ()


class TokenChunk(msgspec.Struct, frozen=True, array_like=True):
    """What one step added to one request. `position` is that of the first token id; `text` may be
    empty while a character or a possible stop string is incomplete. `logprobs`: one for each token id, if wanted,
    but for one that only ends the answer."""

    request_id: str
    position: int
    token_ids: tuple[int, ...]
    text: str
    finish: Finish | None = None
    logprobs: tuple[TokenLogprob, ...] = ()


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """All tokens of one engine step for one gateway. `number` counts from 1 per worker incarnation and
    gateway; a frame without chunks repeats the last number, so that a lost last frame is noticed."""

    replica_id: str
    incarnation: str
    number: int
    chunks: tuple[TokenChunk, ...] = ()
    written_at_s: float = 0.0
    """When the step was over, by the replica's wall clock; 0: not said. A replayed frame keeps it."""


class Cancel(msgspec.Struct, frozen=True, kw_only=True):
    gateway_id: str
    request_id: str
    reason: str = ""


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    request_id: str
    found: bool


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for frames `first`..`last` (inclusive) again."""

    gateway_id: str
    incarnation: str
    first: int
    last: int


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """`missing` is true if the buffer no longer holds all of them: the streams concerned cannot go on."""

    frames: tuple[Frame, ...]
    missing: bool = False
