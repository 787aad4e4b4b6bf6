"""How many replicas should serve: up at once where it is urgent, on the average else, and down slowly."""

from __future__ import annotations

import math

import msgspec

from services.autoscaler.core.load import PoolLoad
from services.autoscaler.core.memory import PoolMemory
from services.autoscaler.core.need import Need, Needs, larger
from services.autoscaler.core.policy import ScalePolicy
from services.autoscaler.core.roster import Roster
from shared.messages.pools import is_merged

_HOUR_S = 3_600.0
_SLICES = 8
_SLACK = 0.1
"""Of a replica: so little is not worth one."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    desired: int
    reason: str
    memory: PoolMemory


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a pool: all that the wish is made of besides what is remembered."""

    load: PoolLoad
    roster: Roster
    needs: Needs
    now_s: float
    policy: ScalePolicy


def wish_of(memory: PoolMemory, look: Look) -> Wish:
    """The wish after one more look, within its limits. The largest need wins, with its reason."""
    desired = look.roster.places if memory.desired is None else memory.desired
    memory = _noted(memory, look)
    if not look.load.wanted:
        return _within(Wish(desired=0, reason="its customer has become quiet", memory=memory), look)
    if memory.desired is None:
        return _within(
            Wish(desired=desired, reason=_beginning(desired, look), memory=_recorded(memory, desired, look)), look
        )
    if not memory.highs:
        memory = _recorded(memory, desired, look)
    held = _blind(look)
    if held:
        return _within(Wish(desired=desired, reason=held, memory=_recorded(memory, desired, look)), look)
    memory = _recorded(memory, look.needs.largest.replicas, look)
    panic = _leaps(look)
    if panic:
        memory = msgspec.structs.replace(memory, panic_until_s=look.now_s + look.policy.pace.panic_s)
    return _within(_follow(memory, desired, _urgent(memory, look, panic=panic), look), look)


def _beginning(desired: int, look: Look) -> str:
    if is_merged(look.load.pool_id) and not desired:
        return "its customer fills a replica by itself"
    return f"{desired} replicas were there when the autoscaler began"


def _follow(memory: PoolMemory, desired: int, urgent: Need, look: Look) -> Wish:
    wanted = _whole(urgent.replicas - _SLACK)
    if min(wanted, _highest(look)[0]) > desired:
        memory = _recorded(memory, urgent.replicas, look)
        memory = msgspec.structs.replace(memory, raised_at_s=look.now_s, rising=True)
        return Wish(desired=wanted, reason=urgent.reason, memory=memory)
    if wanted > desired:
        return Wish(desired=wanted, reason=urgent.reason, memory=memory)
    return _down(memory, desired, look)


def _leaps(look: Look) -> bool:
    """Whether the last seconds ask for so much more that waiting for the average would cost the objective."""
    pace, demand = look.policy.pace, look.load.demand
    above = demand.requests_per_s_short - demand.requests_per_s
    enough = look.needs.short.replicas < pace.panic_factor * max(1, look.roster.places)
    return not enough and above >= pace.panic_noise * demand.noise_per_s_short


def _noted(memory: PoolMemory, look: Look) -> PoolMemory:
    return msgspec.structs.replace(
        memory,
        pending_at_s=look.now_s if look.roster.pending else memory.pending_at_s,
        turns=tuple(at_s for at_s in memory.turns if look.now_s - at_s < _HOUR_S),
    )


def _blind(look: Look) -> str:
    """Why nothing is known about the load, if so."""
    roster = look.roster
    if roster.deaf and roster.silent:
        return f"{len(roster.silent)} replicas fell silent at once, so it is rather we who do not hear"
    if roster.serving or look.needs.cause.replicas:
        return ""
    if roster.pending:
        return f"{roster.pending} replicas are still starting"
    return "no replica reports as ready, so nothing is known about the load"


def _urgent(memory: PoolMemory, look: Look, *, panic: bool) -> Need:
    """The need that may raise the wish now."""
    needs = [look.needs.cause]
    if panic:
        needs.append(look.needs.sure)
    if _settled(memory, look):
        most = look.policy.pace.growth * len(look.roster.serving)
        symptom = look.needs.symptom
        needs.append(msgspec.structs.replace(symptom, replicas=min(symptom.replicas, most)))
    return larger(needs)


def _settled(memory: PoolMemory, look: Look) -> bool:
    since_s = memory.pending_at_s
    return since_s is None or look.now_s - since_s >= look.policy.pace.settle_s


def _down(memory: PoolMemory, desired: int, look: Look) -> Wish:
    """Fewer, once fewer have been enough for long: as many as the largest need of that time."""
    pace, need = look.policy.pace, look.needs.largest
    enough = max(_whole(max(high for _, high in memory.highs) + pace.down_margin), look.policy.min_replicas)
    if enough >= desired:
        return Wish(desired=desired, reason=_unanswered(need, desired, look), memory=memory)
    waits = _waits(memory, desired - enough, look)
    if waits:
        return Wish(desired=desired, reason=f"{enough} would do, {waits}", memory=memory)
    step = max(1, math.floor(pace.down_share * desired))
    reason = f"{enough} have been enough for {pace.down_hold_s:.0f} s"
    return Wish(desired=max(enough, desired - step), reason=reason, memory=_lowered(memory, look.now_s))


def _waits(memory: PoolMemory, spared: int, look: Look) -> str:
    """What a smaller wish still waits for; "" for nothing."""
    pace, now_s = look.policy.pace, look.now_s
    if memory.panic_until_s is not None and now_s < memory.panic_until_s:
        return "but the load has just leapt"
    if memory.stepped_at_s is not None and now_s - memory.stepped_at_s < pace.down_step_s:
        return "a step at a time"
    turns = len(memory.turns) if memory.rising else 0
    if turns >= pace.turns_per_hour or spared < pace.turn_share * turns * (memory.desired or 0):
        return f"but the wish has turned {turns} times within an hour"
    return ""


def _recorded(memory: PoolMemory, replicas: float, look: Look) -> PoolMemory:
    """The needs of the last `down_hold_s`, in slices, so that little is remembered."""
    slice_s = look.policy.pace.down_hold_s / _SLICES
    now = math.floor(look.now_s / slice_s)
    highs = tuple(high for high in memory.highs if high[0] >= now - _SLICES)
    if highs and highs[-1][0] == now:
        highs = (*highs[:-1], (now, max(replicas, highs[-1][1])))
    else:
        highs = (*highs, (now, replicas))
    return msgspec.structs.replace(memory, highs=highs)


def _lowered(memory: PoolMemory, now_s: float) -> PoolMemory:
    turns = (*memory.turns, now_s) if memory.rising else memory.turns
    return msgspec.structs.replace(memory, stepped_at_s=now_s, rising=False, turns=turns)


def _unanswered(need: Need, desired: int, look: Look) -> str:
    """The reason of a wish that stays: a symptom that is not believed yet says why."""
    if _whole(need.replicas - _SLACK) <= desired:
        return need.reason
    if look.roster.pending:
        return f"{need.reason}; {look.roster.pending} replicas are still starting"
    return f"{need.reason}; new replicas have not yet shown what they do"


def _within(wish: Wish, look: Look) -> Wish:
    highest, limit = _highest(look)
    desired = min(max(wish.desired, _lowest(look)), highest)
    reason = wish.reason
    if wish.desired > desired:
        reason = f"{wish.reason}; {wish.desired} would be needed, {limit} allows {highest}"
    return Wish(desired=desired, reason=reason, memory=msgspec.structs.replace(wish.memory, desired=desired))


def _lowest(look: Look) -> int:
    """One merged replica is enough: its customer has owners in the pool that it comes from."""
    if not look.load.wanted:
        return 0
    return 1 if is_merged(look.load.pool_id) else look.policy.min_replicas


def _highest(look: Look) -> tuple[int, str]:
    """The most that may be wished for, and what says so. The least that must be there comes before the budget."""
    affordable = look.load.affordable
    if affordable is not None and affordable < look.policy.max_replicas:
        return max(_lowest(look), affordable), "the budget"
    return look.policy.max_replicas, "MAX_REPLICAS"


def _whole(replicas: float) -> int:
    return max(0, math.ceil(replicas))
