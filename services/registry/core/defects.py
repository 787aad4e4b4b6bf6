"""Everything that is wrong, as many sentences as there are faults."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from shared.messages.adapters import Defect

Code = Literal[
    "adapter_id_invalid",
    "adapter_id_taken",
    "alias_foreign",
    "alias_invalid",
    "alias_is_base_model",
    "alpha_invalid",
    "base_model_invalid",
    "base_model_unknown",
    "bias",
    "checksum_invalid",
    "checksum_mismatch",
    "config_disagrees",
    "config_invalid",
    "dataset_uri_invalid",
    "dora",
    "dtype_invalid",
    "evaluated_by_invalid",
    "expression_invalid",
    "expression_not_served",
    "feature_not_served",
    "file_too_large",
    "half_missing",
    "invalid_announcement",
    "layer_unknown",
    "module_not_adaptable",
    "module_not_targeted",
    "module_unknown",
    "more_defects",
    "no_tensors",
    "not_finite",
    "not_lora",
    "not_safetensors",
    "pattern_unused",
    "pickle_refused",
    "predecessor_invalid",
    "predecessor_unknown",
    "rank_invalid",
    "rank_too_high",
    "shape_invalid",
    "symlink_refused",
    "target_invalid",
    "target_without_tensors",
    "targets_empty",
    "targets_repeated",
    "tenant_invalid",
    "tenant_unknown",
    "tensor_unknown",
    "version_invalid",
    "vocabulary_differs",
    "weights_changed",
    "weights_missing",
    "weights_uri_refused",
]
"""Stable: pipelines decide by them. docs/pipelines.md says of each when it comes and what `found` and `allowed` are."""

CODES: tuple[Code, ...] = get_args(Code)

MOST_DEFECTS = 100
LONGEST_MESSAGE = 500
LONGEST_FIELD = 128
LONGEST_VALUE = 200


def defect(code: Code, message: str, field: str | None = None, *, found: object = "", allowed: object = "") -> Defect:
    """Names and values in a message come from customers and may be of any length; an answer may not."""
    return Defect(
        code=code,
        message=_shortened(message, LONGEST_MESSAGE),
        field=None if field is None else _shortened(field, LONGEST_FIELD),
        found=_shortened(_printable(str(found)), LONGEST_VALUE),
        allowed=_shortened(_printable(str(allowed)), LONGEST_VALUE),
    )


def capped(defects: Iterable[Defect]) -> tuple[Defect, ...]:
    """At most MOST_DEFECTS and one that counts the rest: an answer must fit into one message."""
    every = tuple(defects)
    if len(every) <= MOST_DEFECTS:
        return every
    rest = len(every) - MOST_DEFECTS
    more = defect("more_defects", f"There are {rest} more defects of these kinds.", found=rest, allowed=MOST_DEFECTS)
    return (*every[:MOST_DEFECTS], more)


def quoted(value: object) -> str:
    """A customer's word or number as part of a message."""
    return _shortened(repr(value), 80)


def _printable(text: str) -> str:
    """No database and no terminal has to take what a customer hides in a name."""
    return text if text.isprintable() else repr(text)


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
