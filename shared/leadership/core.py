"""Who holds a role, decided from what the bus says of its lease and from nobody's clock but one's own.

The holder writes the lease anew, a beat higher each time, by compare-and-set. It may act until a part of
`ttl_s` has passed since it *sent* the last renewal that was stored. Everybody else may take the lease once they
have seen it unchanged for all of `ttl_s` since they *saw* it, which is later. So no clock is compared with another:
two rates that differ by less than MARGIN never let two act at a time.
"""

from __future__ import annotations

import msgspec

from shared.messages.desired import Lease

RENEWALS = 3
"""In one `ttl_s`: one that is lost costs nothing."""

MARGIN = 0.2
"""Of `ttl_s`, at its end, in which the holder acts no more: enough for a clock that is 10 % slow beside one that is
10 % fast (0.8 / 0.9 < 1 / 1.1)."""

NOBODY = ""
"""The holder of a lease that was given up."""


class Self(msgspec.Struct, frozen=True, kw_only=True):
    """One process that may come to lead. `holder` is a name that no other process has or ever had."""

    role: str
    holder: str
    ttl_s: float


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """The lease as the bus holds it."""

    lease: Lease
    revision: int


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What one process knows. `Memory()` is that of one which has just begun."""

    contends: bool = False
    """Whether it would act if it could: only then it takes the lease."""
    floor: int = 0
    """The newest epoch seen anywhere; a claim goes above it."""
    beat: int = 0
    seen_revision: int | None = None
    seen_at_s: float = 0.0
    """When it was found at that revision first; later by as long as nothing could be seen since."""
    looked_at_s: float = 0.0
    is_blind: bool = False
    """Whether the last look failed; the one before was at `looked_at_s`."""
    attempt: Lease | None = None
    """What it wrote last; whether that was stored may not be known yet."""
    attempt_at_s: float = 0.0
    epoch: int = 0
    """Of the last renewal that was stored."""
    renewed_at_s: float | None = None
    """When that was sent; None: it does not hold the lease."""
    why: str = ""
    """It claimed the lease, when it did last."""
    reason: str = "has not looked yet"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What to remember, and what to write, if anything, on condition of `expected_revision`."""

    memory: Memory
    put: Lease | None = None
    expected_revision: int = 0


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """`epoch` is the fencing epoch of everything that is written while `leads`."""

    leads: bool
    epoch: int
    reason: str


def may_act(me: Self, memory: Memory, now_s: float) -> bool:
    """Whether nobody else can have taken the role yet, whatever became of the bus."""
    if memory.renewed_at_s is None or memory.epoch < memory.floor:
        return False
    return now_s - memory.renewed_at_s < (1.0 - MARGIN) * me.ttl_s


def standing(me: Self, memory: Memory, now_s: float) -> Standing:
    leads = may_act(me, memory, now_s)
    reason = memory.reason
    if not leads and memory.renewed_at_s is not None:
        reason = f"its renewal of the lease is {now_s - memory.renewed_at_s:.1f} s old"
    return Standing(leads=leads, epoch=memory.epoch, reason=reason)


def contending(memory: Memory) -> Memory:
    """From now on it takes the lease when it may."""
    return msgspec.structs.replace(memory, contends=True)


def heeding(memory: Memory, epoch: int) -> Memory:
    """After an epoch was found on something that is written in this role: one above our own ends our acting, until
    we hold the lease with a higher one."""
    return msgspec.structs.replace(memory, floor=max(memory.floor, epoch))


def step(me: Self, memory: Memory, entry: Entry | None, now_s: float) -> Step:
    """One look at the lease."""
    memory = _observed(memory, entry, now_s)
    if entry is None:
        return _claim(me, memory, entry, now_s, "nobody has held the lease")
    if entry.lease.holder == me.holder:
        return _hold(me, memory, entry, now_s)
    memory = lost(memory, f"{entry.lease.holder or 'nobody'} leads with epoch {entry.lease.epoch}")
    if entry.lease.holder == NOBODY:
        return _claim(me, memory, entry, now_s, "the lease was given up")
    unchanged_s = now_s - memory.seen_at_s
    if unchanged_s < entry.lease.ttl_s:
        return Step(memory=memory)
    return _claim(me, memory, entry, now_s, f"{entry.lease.holder} did not renew the lease for {unchanged_s:.1f} s")


def stored(memory: Memory) -> Memory:
    """The last attempt was stored."""
    assert memory.attempt is not None
    return _renewed(memory, memory.attempt)


def lost(memory: Memory, reason: str) -> Memory:
    """Somebody else wrote: it no longer leads, as far as it knows."""
    return msgspec.structs.replace(memory, renewed_at_s=None, reason=reason)


def blind(memory: Memory) -> Memory:
    """The bus could not be asked. That nobody renews what nobody can write says nothing about the holder, so a
    contender does not count that time."""
    return msgspec.structs.replace(memory, is_blind=True)


def surrender(me: Self, memory: Memory, entry: Entry | None) -> Step:
    """Give the lease up, if it is ours, so that the next one need not wait."""
    memory = lost(msgspec.structs.replace(memory, contends=False), "has given the lease up")
    if entry is None or entry.lease.holder != me.holder:
        return Step(memory=memory)
    given_up = Lease(role=me.role, holder=NOBODY, epoch=entry.lease.epoch, beat=memory.beat + 1, ttl_s=me.ttl_s)
    return Step(memory=memory, put=given_up, expected_revision=entry.revision)


def _observed(memory: Memory, entry: Entry | None, now_s: float) -> Memory:
    """What the entry says by itself. A write of ours that was in doubt counts from when it was sent."""
    if entry is None:
        return lost(_looked(memory, None, now_s), "nobody holds the lease")
    memory = heeding(memory, entry.lease.epoch)
    if memory.attempt == entry.lease:
        memory = _renewed(memory, entry.lease)
    return _looked(memory, entry.revision, now_s)


def _looked(memory: Memory, revision: int | None, now_s: float) -> Memory:
    seen_at_s = memory.seen_at_s
    if memory.seen_revision != revision:
        seen_at_s = now_s
    elif memory.is_blind:
        seen_at_s += now_s - memory.looked_at_s
    return msgspec.structs.replace(
        memory, seen_revision=revision, seen_at_s=seen_at_s, looked_at_s=now_s, is_blind=False
    )


def _renewed(memory: Memory, lease: Lease) -> Memory:
    return msgspec.structs.replace(
        memory,
        floor=max(memory.floor, lease.epoch),
        epoch=lease.epoch,
        renewed_at_s=memory.attempt_at_s,
        reason=f"holds the lease with epoch {lease.epoch}: {memory.why}",
    )


def _hold(me: Self, memory: Memory, entry: Entry, now_s: float) -> Step:
    """It is ours, though perhaps by a write that arrived later than we thought."""
    if entry.lease.epoch < memory.floor:
        return _claim(me, memory, entry, now_s, f"epoch {memory.floor} was written without the lease")
    if memory.renewed_at_s is not None and now_s - memory.renewed_at_s < me.ttl_s / RENEWALS:
        return Step(memory=memory)
    return _write(me, memory, entry, now_s, entry.lease.epoch)


def _claim(me: Self, memory: Memory, entry: Entry | None, now_s: float, why: str) -> Step:
    if not memory.contends:
        return Step(memory=lost(memory, f"does not contend yet: {why}"))
    memory = msgspec.structs.replace(lost(memory, f"claims the lease: {why}"), why=why)
    return _write(me, memory, entry, now_s, memory.floor + 1)


def _write(me: Self, memory: Memory, entry: Entry | None, now_s: float, epoch: int) -> Step:
    """Every attempt has a beat of its own, so that none is taken for another when its fate becomes known late."""
    beat = max(memory.beat, entry.lease.beat if entry is not None else 0) + 1
    lease = Lease(role=me.role, holder=me.holder, epoch=epoch, beat=beat, ttl_s=me.ttl_s)
    memory = msgspec.structs.replace(memory, beat=beat, attempt=lease, attempt_at_s=now_s)
    return Step(memory=memory, put=lease, expected_revision=entry.revision if entry is not None else 0)
