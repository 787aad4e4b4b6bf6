"""One request of a gateway, from its arrival to its last token."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from services.replica_worker.engine.port import BASE_SLOT, EngineRequest, StepToken
from services.replica_worker.engine.shaping import Grammar, Shaping
from services.replica_worker.requests.answer_text import AnswerText
from services.replica_worker.requests.inside import Inside
from services.replica_worker.tiers.slot_reference import SlotReference
from shared.messages.generation import Finish, GenerateRequest, Sampling, TokenChunk, TokenLogprob, Usage
from shared.messages.identity import AdapterKey
from shared.runtime.tracing import NO_SPAN, Span


@dataclass(eq=False)
class Running:
    """`submitted`: it is in the engine, or was withdrawn until its slot is loaded once more; not while it is paused.
    `accepted`: the gateway was told so, or is being told."""

    request: GenerateRequest
    arrived_at_s: float
    inside: Inside | None = None
    """Who asked, if it was this process itself and no gateway."""
    tier: str = "gpu"
    """Where the adapter was found. The base model's weights are always in the engine."""
    accepted: bool = False
    submitted: bool = False
    held: list[StepToken] | None = None
    """Tokens that wait for the proof of the slot; None if nothing is held back."""
    held_since_s: float | None = None
    load_began_at_s: float | None = None
    in_line_at_s: float | None = None
    """When nothing was left to be done for it before its turn."""
    turn_at_s: float | None = None
    """When it was first given its turn."""
    ahead: int | None = None
    """How many had no first token yet then; None: no row was free for it either."""
    first_token_at_s: float | None = None
    prompt_token_ids: list[int] = field(default_factory=list, repr=False)
    answer_tokens_limit: int = 0
    """How long the whole answer may become."""
    grammar: Grammar | None = None
    """What its answer must follow, as the engine has understood it."""
    cached_tokens: int = 0
    """How many of the prompt's tokens this replica's engine found in its prefix cache."""
    produced_token_ids: list[int] = field(default_factory=list, repr=False)
    """Here; those of the request come before them."""
    resumed_tokens: int = 0
    """How many tokens it was given back to the engine with, until it is known how many of them were cached."""
    span: Span = field(default=NO_SPAN, repr=False)
    text: AnswerText | None = None
    reference: SlotReference | None = None
    admission: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def key(self) -> AdapterKey | None:
        if self.request.adapter_id is None or self.request.digest is None:
            return None
        return AdapterKey(adapter_id=self.request.adapter_id, digest=self.request.digest)

    @property
    def prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)

    @property
    def produced(self) -> int:
        return len(self.produced_token_ids)

    @property
    def pausable(self) -> bool:
        """It runs, and has produced something since it began or went on: else it could be paused again and again
        and never come any further. Nothing about its slot is open."""
        proven = self.reference is not None and self.reference.proof.proven
        moves = self.first_token_at_s is not None and not self.resumed_tokens
        return self.submitted and self.held is None and moves and proven

    @property
    def promised(self) -> int:
        """Tokens of context, and of the answer that is still to come."""
        return self.prompt_tokens + self.answer_tokens_limit - self.produced

    @property
    def continued_from(self) -> int:
        return len(self.request.produced_token_ids)

    def over_before(self) -> str | None:
        """How the answer ended already, if the replica before this one was lost between its last token and its
        finish: nothing is left to be produced."""
        if self.text is not None and self.text.stopped:
            return "stop"
        return "length" if self.continued_from >= self.answer_tokens_limit else None

    def late(self, now_s: float) -> bool:
        """The first token should have come by now."""
        return self.first_token_at_s is None and now_s - self.arrived_at_s >= self.request.deadline_s

    def for_engine(self) -> EngineRequest:
        """What is left to be done, after what was produced here or elsewhere."""
        sampling, answer = self.request.sampling, [*self.request.produced_token_ids, *self.produced_token_ids]
        return EngineRequest(
            request_id=self.request.request_id,
            slot=BASE_SLOT if self.reference is None else self.reference.slot,
            prompt_token_ids=[*self.prompt_token_ids, *answer],
            max_tokens=self.answer_tokens_limit - len(answer),
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=sampling.seed,
            first_position=len(answer),
            cache_salt=self.request.cache_salt,
            shaping=shaping_of(sampling, self.grammar),
        )

    def pause(self) -> None:
        """It leaves the engine, with what it has produced."""
        self.submitted = False
        self.resumed_tokens = self.prompt_tokens + self.continued_from + self.produced

    def computed_again(self, token: StepToken) -> int:
        """How many of its tokens the engine had to compute once more for this one, because of a pause."""
        given, self.resumed_tokens = self.resumed_tokens, 0
        return given - token.cached_tokens - 1 if given else 0

    def hold_back(self, token: StepToken, now_s: float) -> bool:
        """Whether this token has to wait; it is kept then."""
        if self.held is None:
            return False
        self.held.append(token)
        self.held_since_s = now_s if self.held_since_s is None else self.held_since_s
        return True

    def let_go(self) -> list[StepToken]:
        """What waited; nothing does any more."""
        held, self.held, self.held_since_s = self.held or [], None, None
        return held

    def advance(self, token: StepToken) -> TokenChunk:
        """What one token of the engine means for the client; it has a finish if it was the last."""
        if token.error is not None:
            return self.end("error", token.error)
        assert self.text is not None, "a request gets its text before it gets tokens"
        if not self.produced:
            # On a continuation the engine may have found tokens of the answer as well.
            self.cached_tokens = min(token.cached_tokens, self.prompt_tokens)
        self.produced_token_ids.append(token.token_id)
        # An end-of-answer token is counted, and has no text and no log probability.
        text = "" if token.finish == "stop" else self.text.push(token.token_id)
        reason = "stop" if self.text.stopped else token.finish
        if reason is not None and not self.text.stopped:
            text += self.text.flush()
        finish = None if reason is None else Finish(reason=reason, usage=self.usage())
        return TokenChunk(self.request.request_id, token.position, (token.token_id,), text, finish, self._told(token))

    def _told(self, token: StepToken) -> tuple[TokenLogprob, ...]:
        """Of a token that has text."""
        if token.logprobs is None or token.finish == "stop" or self.text is None:
            return ()
        return (self.text.logprob(token.token_id, token.logprobs),)

    def end(self, reason: str, error: str | None = None) -> TokenChunk:
        """A last chunk without a token. Only an answer that is complete gets the text that was held back."""
        finish = Finish(reason=reason, usage=self.usage(), error=error)
        text = self.text.flush() if reason in ("stop", "length") and self.text is not None else ""
        return TokenChunk(self.request.request_id, self.continued_from + self.produced, (), text, finish)

    def usage(self) -> Usage:
        return Usage(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.continued_from + self.produced,
            cached_tokens=self.cached_tokens,
        )


def shaping_of(sampling: Sampling, grammar: Grammar | None) -> Shaping | None:
    """None if it asks for nothing beside temperature and top_p: that is most requests, and costs an engine nothing."""
    shaping = Shaping(
        frequency_penalty=sampling.frequency_penalty,
        presence_penalty=sampling.presence_penalty,
        logit_bias=sampling.logit_bias,
        top_logprobs=sampling.top_logprobs,
        grammar=grammar,
    )
    return None if shaping == _AS_IT_IS else shaping


_AS_IT_IS = Shaping()
