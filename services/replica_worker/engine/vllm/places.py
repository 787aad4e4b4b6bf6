"""Which adapter stands in which of our slots, under which of vLLM's ids. Pure.

Our slots are logical: vLLM chooses places of its own. What is agreed on is the id, counted up and never used
again, because an id that comes back is served from whatever vLLM still holds under it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from .adapter import VllmAdapter


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What vLLM is told of one load. It compares adapters by name, so no two that stand may share one; and it
    keys its prefix cache by name and path, so an adapter that comes back under its name finds what it computed."""

    lora_id: int
    name: str
    adapter: VllmAdapter
    """Kept, so that its files stay as long as vLLM may read them."""

    @property
    def folder(self) -> Path:
        """The same path for the same name, wherever the files lie this time."""
        return self.adapter.folder.parent / "named" / self.name


@dataclass
class Places:
    _by_slot: dict[int, Place] = field(default_factory=dict)
    _forgotten: Counter[str] = field(default_factory=Counter)
    _last_id: int = 0

    def take(self, slot: int, adapter: VllmAdapter) -> Place:
        """The slot must be empty."""
        assert slot not in self._by_slot, f"slot {slot} still has a place"
        self._last_id += 1
        name = f"{adapter.version}.{self._forgotten[adapter.version]}"
        if any(place.name == name for place in self._by_slot.values()):
            name = f"{name}@{self._last_id}"
        place = Place(lora_id=self._last_id, name=name, adapter=adapter)
        self._by_slot[slot] = place
        return place

    def of(self, slot: int) -> Place | None:
        return self._by_slot.get(slot)

    def leave(self, slot: int, *, forget: bool) -> None:
        """`forget`: what was computed with the adapter until now is not to be found if it comes back."""
        place = self._by_slot.pop(slot, None)
        if place is not None and forget:
            self._forgotten[place.adapter.version] += 1

    def disagreement(self, standing: set[int]) -> str | None:
        """How the ids that stand in vLLM's slots differ from ours, in one sentence."""
        ours = {place.lora_id for place in self._by_slot.values()}
        if standing == ours:
            return None
        return f"vLLM's slots hold the adapters {sorted(standing)}, and {sorted(ours)} were loaded"
