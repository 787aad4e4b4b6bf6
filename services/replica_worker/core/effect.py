"""Is what a slot does what its adapter did when it was measured?

A few tokens that mean nothing go through the model with the adapter, and the log-probabilities of what would
come next are compared with those on record. Wrong weights, half a copy, a wrong scale or somebody else's slot
all show there, for the price of one short row in a step that runs anyway.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from shared.messages.effects import AdapterEffect

TOP = 20
"""Log-probabilities that are compared."""

_PROMPT_TOKENS = 3
"""Attention to a single token is always 1, so that an adapter on q and k shows only from the second on."""

_MEASURABLE = 4.0
"""A shift of fewer tolerances than this is none: half the adapter, or twice, could pass for the whole."""

_FLOOR = {"float32": 0.002, "bfloat16": 0.05}
"""By dtype, what may differ although nothing is wrong: a few times what SmolLM2 and the tiny model showed when the
same prompt ran alone, beside 31 others, and with another number of threads (docs/decisions/0010)."""
_UNKNOWN_FLOOR = 0.05
_NOISE_MARGIN = 4.0
_RELATIVE = 0.02
_QUIET = 1e-4
"""Noise below this is none."""


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """The best next tokens after a prompt, best first."""

    finite: bool
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """Of one slot: what it does and, if that was looked at beside, the digest of what stands in it."""

    found: Distribution
    slot_digest: str = ""


class Tolerance(msgspec.Struct, frozen=True, kw_only=True):
    """Log-probabilities are the same up to `absolute` plus `relative` times the shift: rounding grows with
    what is added to the base."""

    absolute: float
    relative: float = _RELATIVE

    def of(self, shift: float) -> float:
        return self.absolute + self.relative * shift


_SAME_NUMBERS = Tolerance(absolute=0.002, relative=0.0)


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """The base on this engine, and how much it moved while nothing changed but what was computed beside it."""

    dtype: str
    base: Distribution
    noise: float

    @property
    def digest(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self.base)).hexdigest()[:16]

    @property
    def tolerance(self) -> Tolerance:
        return tolerance_for(self.dtype, self.noise)

    def toward(self, expected: AdapterEffect) -> Tolerance:
        """Machines of one build can still differ in last digits, which 16 bits make large. Where the base came out
        the same to the digit, on a quiet engine, adapters do, too: also those that are almost alike are told apart."""
        same = self.noise < _QUIET and expected.base_digest == self.digest
        return _SAME_NUMBERS if same else self.tolerance


class Proven(msgspec.Struct, frozen=True, kw_only=True):
    reason: str


class Mismatch(msgspec.Struct, frozen=True, kw_only=True):
    reason: str


class Indeterminate(msgspec.Struct, frozen=True, kw_only=True):
    """The probe cannot tell: the slot's bytes must."""

    reason: str


Verdict = Proven | Mismatch | Indeterminate


def probe_prompt(vocabulary_size: int) -> tuple[int, ...]:
    """Token ids spread over the middle of the vocabulary: control tokens stand at one of its ends."""
    return tuple((at + 1) * vocabulary_size // (_PROMPT_TOKENS + 1) for at in range(_PROMPT_TOKENS))


def tolerance_for(dtype: str, noise: float) -> Tolerance:
    """`noise` is how much the base's own log-probabilities moved on this engine while nothing changed but what
    was computed beside them."""
    return Tolerance(absolute=max(_FLOOR.get(dtype, _UNKNOWN_FLOOR), _NOISE_MARGIN * noise))


def judge(expected: AdapterEffect, found: Distribution, tolerance: Tolerance) -> Verdict:
    """Of a probe of the same engine build and dtype."""
    allowed = tolerance.of(expected.shift)
    if not found.finite:
        return Mismatch(reason="the probe's output is not finite")
    changed = change(Distribution(finite=True, token_ids=expected.token_ids, logprobs=expected.logprobs), found)
    if changed > allowed:
        return Mismatch(
            reason=f"a log-probability differs by {changed:.3g} from the one on record, {allowed:.3g} are allowed"
        )
    if expected.shift < _MEASURABLE * allowed:
        return Indeterminate(
            reason=f"it shifts the probe by {expected.shift:.3g}, too little to tell from a noise of {allowed:.3g}"
        )
    return Proven(reason=f"no log-probability differs by more than {changed:.3g}, {allowed:.3g} are allowed")


def change(one: Distribution, other: Distribution) -> float:
    """The largest difference of a log-probability. Of a token that only one of them lists, the other says that
    it is at most as likely as the last one listed: that much is certain."""
    a, b = _by_token(one), _by_token(other)
    if not a or not b:
        return 0.0 if a == b else float("inf")
    both = (abs(a[token] - b[token]) for token in a.keys() & b.keys())
    return max(*both, _beyond(a, b), _beyond(b, a))


def measured(engine: str, found: Distribution, own: Baseline, slot_digest: str) -> AdapterEffect:
    return AdapterEffect(
        engine=engine,
        token_ids=found.token_ids,
        logprobs=found.logprobs,
        shift=change(own.base, found),
        slot_digest=slot_digest,
        base_digest=own.digest,
    )


def on_record(effects: Sequence[AdapterEffect], engine: str) -> AdapterEffect | None:
    return next((effect for effect in effects if effect.engine == engine), None)


def recorded_digest(fingerprint: str, engine: str) -> str:
    """The slot digest in `<build>/<dtype>/<slot digest>`, "" if it is another engine's or there is none."""
    prefix = f"{engine}/"
    return fingerprint.removeprefix(prefix) if fingerprint.startswith(prefix) else ""


def spelled(token_ids: Sequence[int], logprobs: Sequence[float]) -> str:
    """The first few, for a person to read."""
    best = list(zip(token_ids, logprobs, strict=True))[:3]
    return "best tokens " + ", ".join(f"{token} ({logprob:.3f})" for token, logprob in best)


def _by_token(found: Distribution) -> dict[int, float]:
    return dict(zip(found.token_ids, found.logprobs, strict=True))


def _beyond(listed: dict[int, float], other: dict[int, float]) -> float:
    """How far tokens that `other` leaves out stand above its last one."""
    last = min(other.values())
    return max((logprob - last for token, logprob in listed.items() if token not in other), default=0.0)
