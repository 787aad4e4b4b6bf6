"""Who of a pool counts as what: serves, is coming, leaves, is silent, is no longer counted on."""

from __future__ import annotations

import msgspec

from services.autoscaler.core.load import PoolLoad, ReplicaLoad
from services.autoscaler.core.memory import PoolMemory
from services.autoscaler.core.policy import ScalePolicy


class Roster(msgspec.Struct, frozen=True, kw_only=True):
    heard: tuple[ReplicaLoad, ...] = ()
    """Whoever is not silent, whatever it does: their figures are the pool's."""
    serving: tuple[ReplicaLoad, ...] = ()
    coming: tuple[str, ...] = ()
    """There and not ready yet, within the deadline."""
    warming: tuple[str, ...] = ()
    """Ready, and left alone until their adapters are there: they count as coming, and may have a request or two."""
    unheard: int = 0
    """Wished lately and not even named: where the actuator cannot say what exists."""
    silent: tuple[str, ...] = ()
    """No capacity, but they keep their places."""
    leaving: tuple[str, ...] = ()
    """They drain by our order."""
    aside: tuple[str, ...] = ()
    """They drain by somebody else's order, or by their own."""
    late: tuple[str, ...] = ()
    """Not ready within the deadline."""
    lost: tuple[str, ...] = ()
    """Silent for too long, though the actuator says that they exist."""
    deaf: bool = False
    """So many are silent at once that it must be our hearing."""

    @property
    def pending(self) -> int:
        return len(self.coming) + len(self.warming) + self.unheard

    @property
    def places(self) -> int:
        """Whoever fills one of the desired places, now or soon."""
        return len(self.serving) + self.pending + len(self.silent)


def roster_of(memory: PoolMemory, load: PoolLoad, now_s: float, policy: ScalePolicy) -> Roster:
    present = _present(memory, load, now_s, policy)
    deaf = _deaf(load, present, now_s, policy)
    judge = _Judge(now_s=now_s, policy=policy, deaf=deaf)
    kinds: dict[str, list[str]] = {}
    for name in present:
        kinds.setdefault(_kind(name, memory, load, judge), []).append(name)
    if not kinds.get("serving"):  # then they get all requests
        kinds["serving"] = kinds.pop("warming", [])
    roster = Roster(
        heard=tuple(load.replicas[name] for name in present if _fresh(load.replicas.get(name), now_s, policy)),
        serving=tuple(load.replicas[name] for name in kinds.get("serving", ())),
        coming=tuple(kinds.get("coming", ())),
        warming=tuple(kinds.get("warming", ())),
        silent=tuple(kinds.get("silent", ())),
        leaving=tuple(kinds.get("leaving", ())),
        aside=tuple(kinds.get("aside", ())),
        late=tuple(kinds.get("late", ())),
        lost=tuple(kinds.get("lost", ())),
        deaf=deaf,
    )
    return msgspec.structs.replace(roster, unheard=_unheard(roster, memory, load, now_s, policy))


def silent_for_s(replica: ReplicaLoad, now_s: float) -> float:
    return now_s - replica.heard_at_s


def _present(memory: PoolMemory, load: PoolLoad, now_s: float, policy: ScalePolicy) -> tuple[str, ...]:
    """Whoever may be there: a silent one that the actuator does not know is gone, and so is one that was removed."""
    names = {
        name
        for name, replica in load.replicas.items()
        if load.existing is None or name in load.existing or _fresh(replica, now_s, policy)
    }
    return tuple(sorted((names | (load.existing or frozenset())) - memory.removing.keys()))


def _deaf(load: PoolLoad, present: tuple[str, ...], now_s: float, policy: ScalePolicy) -> bool:
    known = [load.replicas[name] for name in present if name in load.replicas]
    silent = [replica for replica in known if not _fresh(replica, now_s, policy)]
    return 2 * len(silent) > len(known)


class _Judge(msgspec.Struct, frozen=True, kw_only=True):
    now_s: float
    policy: ScalePolicy
    deaf: bool

    @property
    def silence_s(self) -> float:
        """How long a silent replica keeps its place."""
        return self.policy.silence.deaf_after_s if self.deaf else self.policy.silence.lost_after_s


def _kind(name: str, memory: PoolMemory, load: PoolLoad, judge: _Judge) -> str:
    replica, now_s = load.replicas.get(name), judge.now_s
    if name in load.held:
        return "aside"
    if name in memory.drains:
        return "leaving"
    if replica is None or not (replica.ready or replica.draining):
        waits_s = now_s - memory.waiting.get(name, now_s)
        return "coming" if waits_s < judge.policy.start.deadline_s else "late"
    if _fresh(replica, now_s, judge.policy):
        if replica.draining:
            return "aside"
        return "warming" if replica.warming else "serving"
    if silent_for_s(replica, now_s) <= judge.silence_s:
        return "silent"
    return "forgotten" if load.existing is None else "lost"


def _fresh(replica: ReplicaLoad | None, now_s: float, policy: ScalePolicy) -> bool:
    return replica is not None and silent_for_s(replica, now_s) <= policy.silence.silent_after_s


def _unheard(roster: Roster, memory: PoolMemory, load: PoolLoad, now_s: float, policy: ScalePolicy) -> int:
    if load.existing is not None or memory.raised_at_s is None or memory.desired is None:
        return 0
    young = now_s - memory.raised_at_s < policy.start.deadline_s
    return max(0, memory.desired - roster.places) if young else 0
