"""Placement in the twin: it hears, `on_tick` decides, and what it writes reaches gateways and replicas."""

from __future__ import annotations

from loadtest.twin.agenda import Agenda
from loadtest.twin.registry import Registry
from loadtest.twin.store import Store
from services.placement.core import demand
from services.placement.core.decide import Facts
from services.placement.core.demand import Demand
from services.placement.core.listening import Listening, policy_for
from services.placement.core.membership import Seen, is_forgotten, observe
from services.placement.core.tick import Memory, TickPolicy, after, on_tick
from shared.messages.activity import GatewayActivity
from shared.messages.reports import ReplicaReport, Residency, ResidencyView, fold_residency

TURN_S = 0.1
JUDGE_S = 1.0
FILL_S = 1.5


class Placing:
    """One placement process. It acts while nobody with a newer epoch has written; `paused` it neither hears nor
    acts."""

    def __init__(self, policy: TickPolicy, agenda: Agenda, registry: Registry, store: Store, epoch: int) -> None:
        self.epoch = epoch
        self.paused = False
        self.superseded = False
        self.reasons: list[tuple[float, str]] = []
        self._policy = policy
        self._agenda = agenda
        self._registry = registry
        self._store = store
        self._stored = store.stored
        self._memory = Memory()
        self._ears = policy_for(policy.membership.lost_after_s, policy.membership.lost_grace_s)
        self._listening = Listening(last_s=agenda.now_s)
        self._seen: dict[str, Seen] = {}
        self._views: dict[str, ResidencyView] = {}
        self._demand = Demand()
        self._due = True
        registry.listen(self.stir)

    def start(self) -> None:
        """It listens for a while before it decides anything."""
        self._agenda.after(FILL_S, self._turn_for_a_change)
        self._agenda.every(JUDGE_S, self.stir, FILL_S + JUDGE_S)

    def on_report(self, report: ReplicaReport) -> None:
        if self.paused:
            return
        self._listening = self._listening.heard(self._agenda.now_s, self._ears)
        before = self._seen.get(report.replica_id)
        found = self._seen[report.replica_id] = observe(before, report, self._time_s())
        if before is None or before.told != found.told:
            self.stir()

    def on_residency(self, message: Residency) -> None:
        if not self.paused:
            view = self._views.get(message.replica_id, ResidencyView())
            self._views[message.replica_id] = fold_residency(view, message)

    def on_activity(self, message: GatewayActivity) -> None:
        if not self.paused:
            self._demand = demand.fold(self._demand, message, self._real_s(), self._policy.demand)

    def stir(self) -> None:
        """Something has changed: what comes within one turn is one change."""
        if not self._due and not self.paused:
            self._due = True
            self._agenda.after(TURN_S, self._turn_for_a_change)

    def turn(self) -> None:
        """Decide, and write what differs."""
        if self.paused or self.superseded or not self._seen:
            return
        if self._store.epoch > self.epoch and self._store.heard(self):
            self.superseded = True
            return
        decision = on_tick(self._memory, self.facts(), self._stored, self._policy, self.epoch)
        self._memory, self._stored = decision.memory, after(self._stored, decision)
        self.reasons += [(self._agenda.now_s, reason) for reason in decision.reasons]
        self._store.write(self, decision)

    def facts(self) -> Facts:
        now_s = self._time_s()
        for name in [name for name, seen in self._seen.items() if is_forgotten(seen, now_s, self._policy.membership)]:
            del self._seen[name]
            self._views.pop(name, None)
        return Facts(
            now_s=now_s,
            real_s=self._real_s(),
            adapters=self._registry.records,
            rank_classes=self._store.rank_classes,
            seen=dict(self._seen),
            drained=frozenset(self._store.drained),
            held={name: view.tiers for name, view in self._views.items()},
            activity=self._demand,
        )

    def _turn_for_a_change(self) -> None:
        self._due = False
        self.turn()

    def _real_s(self) -> float:
        return self._listening.real_s(self._agenda.now_s)

    def _time_s(self) -> float:
        return self._listening.time_s(self._agenda.now_s, self._ears)
