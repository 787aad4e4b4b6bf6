"""One request of a workload, as whoever answers it needs to know it."""

from __future__ import annotations

import msgspec


class Call(msgspec.Struct, frozen=True, gc=False):
    """`tenant` is a customer, counted from 0, and its rank by popularity when the workload begins. `adapter` is the
    version that the customer's alias names at that moment: `tenant` + customers × version, the first version being 0,
    so that a new version is a new adapter and never an old one's number. Positional, since millions are made."""

    at_s: float
    """Since the workload began; no call is earlier than the one before it."""
    adapter: int
    tenant: int
    prompt_tokens: int
    output_tokens: int
    """What it will produce; only the replica finds out."""
    max_tokens: int
    """What it allows, at least `output_tokens`."""
    stream: bool


class Move(msgspec.Struct, frozen=True, gc=False):
    """A customer's alias goes to a new version: every call of `tenant` from `at_s` on names `adapter`."""

    at_s: float
    tenant: int
    adapter: int
    previous: int
