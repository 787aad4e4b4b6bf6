"""What still points at a base model, and why it therefore cannot go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from shared.messages.adapters import Defect

_SENTENCES: Mapping[str, str] = {
    "alias": "Alias {name} means {adapter_id}.",
    "split": "A split of alias {name} means {adapter_id}.",
    "guard": "A guard of alias {name} goes back to {adapter_id}.",
    "rollback": "Alias {name} would roll back to {adapter_id}.",
    "adapter": "Adapter {adapter_id} is {name}.",
    "migration": "Migration {name} is open.",
}
"""By kind of pointer, in the order in which they are told."""


class Pointer(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is the alias, the adapter's status or the migration's id; `adapter_id` the version on the base."""

    kind: str
    name: str
    adapter_id: str = ""


class StillNeeded(msgspec.Struct, frozen=True, kw_only=True):
    """A base model that something points at; nothing was changed."""

    base_name: str
    pointers: tuple[Pointer, ...]

    @property
    def message(self) -> str:
        counts = Counter(pointer.kind for pointer in self.pointers)
        told = ", ".join(_counted(counts[kind], kind) for kind in _SENTENCES if counts[kind])
        return f"Base model {self.base_name} cannot go: {told} still point at it."


def _counted(count: int, kind: str) -> str:
    plural = {"alias": "aliases"}.get(kind, f"{kind}s")
    return f"{count} {kind if count == 1 else plural}"


def decide_unneeded(base_name: str, pointers: Sequence[Pointer]) -> StillNeeded | None:
    """None if nothing points at the base any more."""
    order = {kind: at for at, kind in enumerate(_SENTENCES)}
    ranked = sorted(pointers, key=lambda one: (order[one.kind], one.name, one.adapter_id))
    return StillNeeded(base_name=base_name, pointers=tuple(ranked)) if ranked else None


def told(needed: StillNeeded) -> tuple[Defect, ...]:
    """Every pointer as a sentence: whoever wants the base gone has to deal with each."""
    return tuple(
        Defect(
            code=f"{one.kind}_points_here",
            message=_SENTENCES[one.kind].format(name=one.name, adapter_id=one.adapter_id),
            found=one.name,
        )
        for one in needed.pointers
    )
