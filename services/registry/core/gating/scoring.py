"""How right an answer is, from 0 to 1."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from services.registry.core.gating.evaluation_sets import EvaluationCase

FitOf = Callable[[str, Any, str], bool]
"""Whether a text fits a regular expression or a JSON schema, given the kind: only their libraries know."""

# Scripts that are written without spaces count by characters.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


def score(case: EvaluationCase, text: str, fits: FitOf) -> float:
    if (rule := _RULES.get(case.kind)) is not None:
        return rule(case.expected, text)
    return float(fits(case.kind, case.expected, text))


def token_f1(reference: str, text: str) -> float:
    """How many words the two have in common: the harmonic mean of the shares of either."""
    wanted, found = _words(reference), _words(text)
    common = (wanted & found).total()
    if common == 0:
        return 0.0
    return 2 * common / (wanted.total() + found.total())


def _exact(expected: str, text: str) -> float:
    return float(text.strip() == expected.strip())


def _contains(expected: str | tuple[str, ...], text: str) -> float:
    texts = (expected,) if isinstance(expected, str) else tuple(expected)
    return sum(one in text for one in texts) / len(texts)


def _max_length(expected: int, text: str) -> float:
    return float(0 < len(text.strip()) <= expected)


def _words(text: str) -> Counter[str]:
    return Counter(_WORD.findall(text.casefold()))


_RULES: Mapping[str, Callable[[Any, str], float]] = {
    "exact": _exact,
    "contains": _contains,
    "max_length": _max_length,
    "reference": token_f1,
}
"""Kinds that need no library."""
