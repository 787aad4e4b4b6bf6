"""Whether the ledger of limits can be reached, told in the log and shown to Prometheus."""

from __future__ import annotations

from services.gateway.core.company import Company
from services.gateway.io.limits_redis import LedgerAway
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger
from shared.runtime.metrics import Metrics

_log = get_logger(__name__)


class Reach:
    """`away`: there is none to ask now. It is taken to be there until a question shows otherwise."""

    def __init__(self, company: Company, clock: Clock, metrics: Metrics, *, configured: bool) -> None:
        self.away = not configured
        self._company = company
        self._clock = clock
        self._alone_said = False
        self._fallback = metrics.gauge(
            "limits_fallback", "1 while limits are held by this gateway's own share, without Redis or Valkey."
        )

    def lost(self, error: LedgerAway) -> None:
        if not self.away:
            self.away = True
            self._fallback.set(1)
            gateways = self._company.count(self._clock.now_s())
            _log.warning("limits are held by this gateway's own share: Redis is away", gateways=gateways, error=error)

    def found(self) -> None:
        if self.away:
            self.away = False
            self._fallback.set(0)
            _log.info("limits are held together with the other gateways again")

    def say_alone(self) -> None:
        """Once: LORAFLEET_GATEWAY_REDIS_URL names no server."""
        if not self._alone_said:
            self._alone_said = True
            self._fallback.set(1)
            _log.warning("limits are held by this gateway's own share: no Redis is configured")
