"""Which base model a registration means that names none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shared.messages.pools import pool_id

_ANY_RANK = 1


class UnclearBase(ValueError):
    """Several base models may be meant, or none is known; one sentence and the choices."""


def only_base(bases: Sequence[Mapping[str, Any]], replicas: Sequence[Mapping[str, Any]]) -> str:
    """The hash of the only base model or, of several that were served once, of the only one with a ready replica.

    Raises UnclearBase.
    """
    serving = [base for base in bases if any(_serves(replica, base) for replica in replicas)]
    choices = bases if len(bases) == 1 else serving
    if len(choices) == 1:
        return str(choices[0]["base_model_hash"])
    if not bases:
        raise UnclearBase("The fleet knows no base model yet: start a replica first.")
    lines = [f"  {base['base_model_hash']}  {base['name']}" for base in serving or bases]
    which = "has ready replicas of" if serving else "has no ready replica, but knows"
    raise UnclearBase("\n".join([f"The fleet {which} {len(lines)} base models: name one by --base HASH.", *lines]))


def _serves(replica: Mapping[str, Any], base: Mapping[str, Any]) -> bool:
    """Pools of one base differ only behind its digits."""
    digits = pool_id(base["base_model_hash"], _ANY_RANK).partition("-")[0]
    return bool(replica["ready"]) and str(replica["pool_id"]).partition("-")[0] == digits
