"""Evaluation sets: questions with what a right answer looks like, as JSON lines."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from services.registry.core.defects import capped, quoted
from services.registry.core.files.unreadable import misfit
from shared.messages.adapters import Defect
from shared.messages.completions import CasePrompt
from shared.messages.generation import ChatMessage

MOST_CASES = 1_000
LARGEST_SET_BYTES = 1 << 20
LARGEST_CASE_BYTES = 128 << 10
"""A question to a replica holds a few cases and must fit into one message."""
MOST_TOKENS = 2_048
"""Of one answer, and of all that are asked for at a time."""
MOST_TEXTS = 50
KINDS = ("exact", "contains", "regex", "json_schema", "max_length", "reference")
_MOST_PROMPTS = 8
_LARGEST_BATCH_BYTES = 256 << 10
_ROLES = ("system", "user", "assistant")
_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class EvaluationCase(msgspec.Struct, frozen=True, kw_only=True):
    """One question. `kind` is one of KINDS and `expected` what that kind compares with; `line` is where it stood."""

    line: int
    messages: tuple[ChatMessage, ...]
    kind: str
    expected: Any
    max_tokens: int = 128


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """A version must score at least `minimum_score`, and no more than `epsilon` below the one it replaces."""

    minimum_score: float = 0.5
    epsilon: float = 0.02


class EvaluationSet(msgspec.Struct, frozen=True, kw_only=True):
    """Of one tenant's adapters, or with `adapter_id` of that one alone. `set_id` is the SHA-256 of cases and policy:
    a changed set is another one."""

    set_id: str
    tenant_id: str
    cases: tuple[EvaluationCase, ...]
    policy: Policy = Policy()
    adapter_id: str = ""
    created_at_s: float = 0.0


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    messages: tuple[ChatMessage, ...]
    max_tokens: int = 128
    exact: str | None = None
    contains: str | tuple[str, ...] | None = None
    regex: str | None = None
    json_schema: dict[str, Any] | bool | None = None
    max_length: int | None = None
    reference: str | None = None


FaultOf = Callable[[str, Any], str | None]
"""What is wrong with a regular expression or a JSON schema, given the kind: only their libraries know."""


def parse(raw: bytes, fault_of: FaultOf) -> tuple[EvaluationCase, ...] | tuple[Defect, ...]:
    """The cases, or everything that is wrong, each with its line."""
    lines = [(number, line) for number, line in enumerate(raw.split(b"\n"), start=1) if line.strip()]
    read = [_read(number, line, fault_of) for number, line in lines]
    faulty = (one for one in read if not isinstance(one, EvaluationCase))
    defects = [*_of_the_whole(len(lines)), *itertools.chain.from_iterable(faulty)]
    return capped(defects) if defects else tuple(one for one in read if isinstance(one, EvaluationCase))


def policy_faults(policy: Policy) -> tuple[Defect, ...]:
    said = (("minimum_score", policy.minimum_score), ("epsilon", policy.epsilon))
    return tuple(
        Defect(code="policy_invalid", message=f"{name} must be from 0 to 1, not {value:g}.", field=name)
        for name, value in said
        if not 0.0 <= value <= 1.0
    )


def set_id_of(cases: tuple[EvaluationCase, ...], policy: Policy) -> str:
    return hashlib.sha256(msgspec.json.encode([cases, policy], order="sorted")).hexdigest()


def prompts_of(asked: EvaluationSet) -> tuple[CasePrompt, ...]:
    """What replicas are asked; cases are numbered from 1."""
    return tuple(
        CasePrompt(case=number, messages=case.messages, max_tokens=case.max_tokens)
        for number, case in enumerate(asked.cases, start=1)
    )


def batches(prompts: Sequence[CasePrompt]) -> Iterator[tuple[CasePrompt, ...]]:
    """As many at a time as one question may hold, and as a slow replica answers before it is given up."""
    batch: list[CasePrompt] = []
    for prompt in prompts:
        if batch and not _fits([*batch, prompt]):
            yield tuple(batch)
            batch = []
        batch.append(prompt)
    if batch:
        yield tuple(batch)


def _fits(batch: Sequence[CasePrompt]) -> bool:
    return (
        len(batch) <= _MOST_PROMPTS
        and sum(prompt.max_tokens for prompt in batch) <= MOST_TOKENS
        and len(msgspec.json.encode(batch)) <= _LARGEST_BATCH_BYTES
    )


def prompt_of(case: EvaluationCase) -> str:
    """The question as people recognise it."""
    return case.messages[-1].content


def expected_of(case: EvaluationCase) -> str:
    """What was expected, as a few words."""
    value = case.expected if isinstance(case.expected, str) else msgspec.json.encode(case.expected).decode()
    return f"{case.kind}: {value}"


def _read(number: int, line: bytes, fault_of: FaultOf) -> EvaluationCase | list[Defect]:
    if len(line) > LARGEST_CASE_BYTES:
        return [_defect(number, f"it has {len(line)} bytes, {LARGEST_CASE_BYTES} are allowed")]
    try:
        said = msgspec.json.decode(line, type=_Line)
    except _NO_JSON as error:
        reason = misfit(str(error)).message if isinstance(error, msgspec.ValidationError) else "it is not JSON"
        return [_defect(number, reason.rstrip("."))]
    if faults := list(_faults(said, fault_of)):
        return [_defect(number, fault) for fault in faults]
    [kind] = _given(said)
    return EvaluationCase(
        line=number,
        messages=said.messages,
        kind=kind,
        expected=getattr(said, kind),
        max_tokens=said.max_tokens,
    )


def _faults(said: _Line, fault_of: FaultOf) -> Iterator[str]:
    yield from _message_faults(said.messages)
    if not 1 <= said.max_tokens <= MOST_TOKENS:
        yield f"max_tokens must be from 1 to {MOST_TOKENS}, not {quoted(said.max_tokens)}"
    given = _given(said)
    if len(given) != 1:
        yield f"it must have exactly one of {', '.join(KINDS)}, not {' and '.join(given) or 'none'}"
        return
    kind, expected = given[0], getattr(said, given[0])
    fault = _expectation_fault(kind, expected) or fault_of(kind, expected)
    if fault is not None:
        yield f"{kind}: {fault}"


def _message_faults(messages: tuple[ChatMessage, ...]) -> Iterator[str]:
    if not messages:
        yield "messages is empty"
        return
    for at, message in enumerate(messages):
        if message.role not in _ROLES:
            yield f"messages[{at}].role must be one of {', '.join(_ROLES)}, not {quoted(message.role)}"
        if not message.content.strip():
            yield f"messages[{at}].content is empty"
    if messages[-1].role != "user":
        yield "the last message must be the user's"


def _expectation_fault(kind: str, expected: Any) -> str | None:
    if kind == "contains":
        texts = (expected,) if isinstance(expected, str) else expected
        if not 1 <= len(texts) <= MOST_TEXTS or not all(texts):
            return f"from 1 to {MOST_TEXTS} texts, none of them empty"
    if kind == "max_length" and expected < 1:
        return f"at least 1 character, not {quoted(expected)}"
    if kind in ("regex", "reference") and not expected.strip():
        return "it is empty"
    return None


def _given(said: _Line) -> list[str]:
    return [kind for kind in KINDS if getattr(said, kind) is not None]


def _of_the_whole(lines: int) -> Iterator[Defect]:
    if lines == 0:
        yield Defect(code="set_empty", message="The evaluation set has no case.")
    if lines > MOST_CASES:
        yield Defect(code="set_too_large", message=f"The evaluation set has {lines} cases, {MOST_CASES} are allowed.")


def _defect(number: int, what: str) -> Defect:
    return Defect(code="case_invalid", message=f"Line {number}: {what}.", field=f"line {number}")
