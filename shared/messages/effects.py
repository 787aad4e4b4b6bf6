"""What an adapter does to its base, measured where it runs: the proof that a slot holds the right weights."""

from __future__ import annotations

import msgspec


class AdapterEffect(msgspec.Struct, frozen=True, kw_only=True):
    """The next-token distribution after the fixed probe prompt, with the adapter applied.

    `engine` is `<build>/<dtype>`: figures of different ones cannot be compared. `token_ids` are the best
    tokens, best first, with their `logprobs`; `shift` is the largest change of a log-probability from the
    base. `slot_digest` is the SHA-256 (hex) over the slot's tensors: adapters can do the same on the probe.
    `base_digest` stands for the base's own distribution there, to the last digit: an engine that gives the
    same has no reason to be off by anything; "" if it was not noted.
    """

    engine: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    shift: float
    slot_digest: str
    base_digest: str = ""
