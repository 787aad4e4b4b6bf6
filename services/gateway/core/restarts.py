"""When a worker process that ended is started again."""

from __future__ import annotations

import msgspec


class RestartPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The pause doubles from `first_s` to `most_s`. Whoever lived for `settled_s` begins anew; after `most_early` that
    did not, one after another, something is wrong that starting again does not heal."""

    first_s: float = 0.2
    most_s: float = 10.0
    settled_s: float = 10.0
    most_early: int = 8


class Restart(msgspec.Struct, frozen=True, kw_only=True):
    """After `pause_s`; None: not at all. `early` is to be said the next time."""

    pause_s: float | None
    early: int


def after_end(early: int, lived_s: float, policy: RestartPolicy) -> Restart:
    """A worker ended by itself; before it, `early` others of the same place had ended early."""
    early = 1 if lived_s >= policy.settled_s else early + 1
    if early > policy.most_early:
        return Restart(pause_s=None, early=early)
    return Restart(pause_s=min(policy.most_s, policy.first_s * 2 ** (early - 1)), early=early)
