"""What a client asks for, whichever of OpenAI's doors it came through."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from services.gateway.core.question import Strategy
from services.gateway.core.refusal import CHAT, AskedBy
from shared.messages.generation import ChatMessage, Sampling

CHARACTERS_PER_TOKEN = 4
UNKNOWN_ANSWER_TOKENS = 1_024
SEEDS = 1 << 63
LENGTH, NEWER_LENGTH = "max_tokens", "max_completion_tokens"
_TEXT = AskedBy(prompt="prompt")
_FORCED = AskedBy(json_schema="tools")


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """Messages for the chat template; or without them a text as it stands, or its token ids."""

    messages: tuple[ChatMessage, ...] = ()
    text: str | None = None
    token_ids: tuple[int, ...] = ()

    @property
    def tokens(self) -> int:
        """About: only the replica can count. Four characters a token is near enough to tell loads apart."""
        said = sum(len(message.content) + len(message.tool_calls) for message in self.messages)
        return (said + len(self.text or "")) // CHARACTERS_PER_TOKEN + len(self.token_ids)


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """`offered` is the JSON text of OpenAI's list. `forced`: the answer is a call, and `json_schema` of the sampling is
    that of the arguments for the function of this name, or with "" of a name and its arguments."""

    offered: str
    forced: str | None = None


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one replica is asked for: one answer to one prompt. `repeats`: it is not the first to this prompt.
    `first`: of all answers to the request."""

    prompt: Prompt
    seed: int
    repeats: bool
    first: bool = True


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """`n` answers to each of `prompts`. `sampling` is that of all of them, but for the seed: the first one's is `seed`,
    or the gateway's draw. `session` is the client's own name for the conversation or its user, and decides nothing but
    which of two versions answers. `strategy` is how a replay wants its replica chosen, where that is allowed.
    `timeout_s`: so long the client waits for its stream to begin, or for an answer that is not streamed.
    `length_field` bounds the answer. `is_text`: it goes on from a text, and the answer begins with that if `echo`."""

    model: str
    prompts: tuple[Prompt, ...]
    n: int = 1
    sampling: Sampling = Sampling(seed=0)
    seed: int | None = None
    stream: bool = False
    include_usage: bool = False
    tools: Tools | None = None
    echo: bool = False
    is_text: bool = False
    length_field: str = LENGTH
    traceparent: str = ""
    session: str | None = None
    strategy: Strategy | None = None
    timeout_s: float | None = None

    @property
    def asked_by(self) -> AskedBy:
        """The fields of the body that `prompts`, the length and the schema of the sampling came in."""
        if self.is_text:
            return _TEXT
        chat = _FORCED if self.tools is not None and self.tools.forced is not None else CHAT
        return chat if self.length_field == LENGTH else msgspec.structs.replace(chat, max_tokens=self.length_field)

    @property
    def choices(self) -> int:
        """How many answers: number `i` is to prompt `i // n`."""
        return self.n * len(self.prompts)

    def parts(self, draw: int) -> list[Part]:
        """One for each answer. The first to each prompt has the seed, or without one `draw`; each other the next."""
        seed = draw if self.seed is None else self.seed
        return [
            Part(prompt=prompt, seed=(seed + turn) % SEEDS, repeats=turn > 0, first=not number and not turn)
            for number, prompt in enumerate(self.prompts)
            for turn in range(self.n)
        ]


def promised_tokens(prompt: Prompt, max_tokens: int | None, max_context_tokens: int) -> int:
    """About how much a replica promises by taking it: context and the tokens it may add. `max_context_tokens` 0 is
    unknown."""
    if not max_context_tokens:
        return prompt.tokens + (max_tokens or UNKNOWN_ANSWER_TOKENS)
    return min(prompt.tokens + (max_tokens or max_context_tokens), max_context_tokens)


def estimated_tokens(wish: Wish, max_context_tokens: int) -> int:
    """About what the request will come to, for limits, each prompt counted once: whoever names no `max_tokens` seldom
    means the whole context."""
    return sum(_estimated(prompt, wish, max_context_tokens) for prompt in wish.prompts)


def _estimated(prompt: Prompt, wish: Wish, max_context_tokens: int) -> int:
    answer = wish.sampling.max_tokens or UNKNOWN_ANSWER_TOKENS
    if max_context_tokens:
        answer = min(answer, max(0, max_context_tokens - prompt.tokens))
        return min(prompt.tokens, max_context_tokens) + wish.n * answer
    return prompt.tokens + wish.n * answer


def opening(prompts: Sequence[Prompt]) -> str:
    """How prompts without messages begin: whoever sends no turns has no other name for a conversation."""
    [first, *_] = prompts
    return first.text[:256] if first.text is not None else repr(first.token_ids[:64])
