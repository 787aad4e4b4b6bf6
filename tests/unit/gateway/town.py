"""Some gateways and their ledger on paper, for tests of limits."""

from __future__ import annotations

import msgspec

from services.gateway.core.allowance import Ask, Decision, Demand, Grant, LeasePolicy, NeedsLease, Pass, Subject
from services.gateway.core.allowances import Allowances
from shared.messages.desired import Limits
from tests.support.paper_ledger import PaperLedger

POLICY = LeasePolicy()
LEDGER_AHEAD_S = 1_000_000.4


class Town:
    """Some gateways, one ledger whose clock is another one, and what was let in when."""

    def __init__(self, gateways: int, limits: Limits) -> None:
        self.now_s = 0.0
        self.waits = 0
        self.sent = 0
        self.ledger: PaperLedger | None = PaperLedger()
        self.subject = Subject(name="tenant acme", limits=limits)
        self.gateways = [Allowances(f"g{at}", POLICY) for at in range(gateways)]
        self.admitted: list[tuple[float, int, Pass, Allowances]] = []
        for each in self.gateways:
            each.gateways(gateways)

    def exchange(self, gateway: Allowances, names: list[str]) -> None:
        for ask in gateway.asks(names, self.now_s):
            self.send(gateway, ask)

    def send(self, gateway: Allowances, ask: Ask) -> None:
        self.sent += 1
        if self.ledger is None:
            gateway.lost(ask)
            return
        at_ms = int((self.now_s + LEDGER_AHEAD_S) * 1000)
        said = msgspec.json.encode(msgspec.structs.replace(ask, now_ms=at_ms))
        grant = self.ledger.answer(msgspec.json.decode(said, type=Ask))
        gateway.granted(ask, msgspec.json.decode(msgspec.json.encode(grant), type=Grant), self.now_s)

    def ask(self, at: int, tokens: int = 1, choices: int = 1) -> Decision:
        gateway, demand = self.gateways[at], Demand(tokens=tokens, choices=choices)
        for _ in range(4):
            alone = self.ledger is None
            decision = gateway.admit((self.subject,), demand, self.now_s, alone=alone)
            if not isinstance(decision, NeedsLease):
                break
            self.waits += 1
            self.exchange(gateway, list(decision.subjects))
        if isinstance(decision, Pass):
            self.admitted.append((self.now_s, len(self.admitted), decision, gateway))
            if refill := gateway.rest(decision, self.now_s).refill:
                self.exchange(gateway, list(refill))
        return decision

    def settle(self, admitted: tuple[float, int, Pass, Allowances], tokens: int) -> None:
        _, _, passed, gateway = admitted
        self.exchange(gateway, list(gateway.settle(passed, tokens, self.now_s)))

    def turn(self) -> None:
        for gateway in self.gateways:
            self.exchange(gateway, gateway.names(self.now_s))

    def greet(self) -> None:
        for gateway in self.gateways:
            self.send(gateway, gateway.greeting())

    def most_in_a_minute(self, sizes: list[int]) -> int:
        times = [at_s for at_s, *_ in self.admitted]
        return max(
            (
                sum(size for at_s, size in zip(times, sizes, strict=True) if begin_s <= at_s < begin_s + 60.0)
                for begin_s in times
            ),
            default=0,
        )
