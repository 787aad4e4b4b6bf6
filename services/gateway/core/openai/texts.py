"""The body of `POST /v1/completions`: text to go on with, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from services.gateway.core.fields import Defect, flag, integer, is_integer, read_body, refuse_all_but, required, shown
from services.gateway.core.openai.sampling import LARGEST_TOKENS, read_max_tokens, read_sampling, read_shared
from services.gateway.core.refusal import Refusal
from services.gateway.core.wish import Prompt, Wish

MOST_ANSWERS = 64
MOST_TOP_LOGPROBS = 5
MOST_BEST_OF = 20
DEFAULT_TOKENS = 16
"""OpenAI's, where nobody says how long the answer may be."""

NOT_SERVED: Mapping[str, tuple[Any, ...]] = {"suffix": ("",)}
_TokenIds = tuple[Annotated[int, msgspec.Meta(ge=0, le=LARGEST_TOKENS)], ...]


def parse(body: bytes) -> Wish | Refusal:
    """Fields that nobody knows are ignored."""
    return read_body(body, _read)


def _read(fields: dict[str, Any]) -> Wish:
    shared = read_shared(fields)
    prompts = _prompts(required(fields, "prompt"))
    refuse_all_but(NOT_SERVED, fields)
    _refuse_best_of(fields, shared.n)
    _refuse_too_many(shared.n * len(prompts))
    sampling = read_sampling(fields, read_max_tokens(fields, "max_tokens") or DEFAULT_TOKENS)
    if (top := integer(fields, "logprobs", 0, MOST_TOP_LOGPROBS)) is not None:
        sampling = msgspec.structs.replace(sampling, top_logprobs=top)
    return msgspec.structs.replace(
        shared, prompts=prompts, sampling=sampling, echo=_echo(fields, prompts, top), is_text=True
    )


def _prompts(value: Any) -> tuple[Prompt, ...]:
    """A text, some texts, token ids, or some lists of them. Millions of anything fit into a body: all requests stand
    still meanwhile, so nothing is done for each but what has to be."""
    if isinstance(value, str) or (isinstance(value, list) and int in set(map(type, value[: MOST_ANSWERS + 1]))):
        return (_prompt("prompt", value),)
    if not isinstance(value, list):
        message = f"`prompt` must be a string, token ids or a list of them, not {shown(value)}."
        raise Defect(message, "prompt", "invalid_type")
    if not value:
        raise Defect("`prompt` must not be empty.", "prompt", "empty_array")
    _refuse_too_many(len(value))
    return tuple(_prompt(f"prompt[{index}]", each) for index, each in enumerate(value))


def _prompt(at: str, value: Any) -> Prompt:
    if not isinstance(value, str | list):
        raise Defect(f"`{at}` must be a string or token ids, not {shown(value)}.", at, "invalid_type")
    if not value:
        raise Defect(f"`{at}` must not be empty.", at, "invalid_value")
    if isinstance(value, str):
        return Prompt(text=value)
    try:
        return Prompt(token_ids=msgspec.convert(value, _TokenIds))
    except msgspec.ValidationError:
        wrong = next(each for each in value if not is_integer(each) or not 0 <= each <= LARGEST_TOKENS)
        raise Defect(f"`{at}` must hold token ids, not {shown(wrong)}.", at, "invalid_value") from None


def _refuse_too_many(answers: int) -> None:
    if answers > MOST_ANSWERS:
        message = f"At most {MOST_ANSWERS} answers may be asked for at once, not {answers}."
        raise Defect(message, "prompt", "invalid_value")


def _refuse_best_of(fields: dict[str, Any], n: int) -> None:
    """The best `n` of `n` are all of them."""
    best_of = integer(fields, "best_of", 1, MOST_BEST_OF)
    if best_of is not None and best_of != n:
        raise Defect("`best_of` is not supported, unless it is `n`.", "best_of", "unsupported_parameter")


def _echo(fields: dict[str, Any], prompts: tuple[Prompt, ...], top_logprobs: int | None) -> bool:
    """The gateway has no tokenizer, and nobody knows how likely a prompt was."""
    if not flag(fields, "echo", "echo"):
        return False
    if top_logprobs is not None:
        raise Defect("`echo` cannot be combined with `logprobs`.", "echo", "unsupported_parameter")
    if any(prompt.text is None for prompt in prompts):
        raise Defect("`echo` needs a prompt of text, not of token ids.", "echo", "unsupported_parameter")
    return True
