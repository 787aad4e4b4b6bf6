"""The gateways that this replica answers: who is there, and who has missed something."""

from __future__ import annotations

from services.replica_worker.core.leases import GatewayLeases
from services.replica_worker.means import Means


class Gateways:
    def __init__(self, means: Means) -> None:
        self._by = means
        self._leases = GatewayLeases()

    def hear(self, gateway_id: str) -> None:
        """Whatever it says proves that it lives; one that had been given up is told what it missed."""
        now_s = self._by.clock.now_s()
        if self._leases.heard(gateway_id, now_s):
            self._by.frames.book.remind(gateway_id, now_s)

    def take_silent(self) -> tuple[str, ...]:
        """Those whose lease is over, each once. While this worker hears nobody, nobody is silent."""
        now_s = self._by.clock.now_s()
        if not self._by.bus.connected:
            self._leases.renew_all(now_s)
        lapsed = self._leases.take_lapsed(now_s)
        for gateway_id in self._leases.take_gone(now_s):
            self._by.frames.book.forget(gateway_id)
        return lapsed
