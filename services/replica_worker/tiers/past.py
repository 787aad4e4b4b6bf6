"""What became of earlier tries to have an adapter, and whom that keeps from trying again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from services.replica_worker.core.failures import FailureMemory, Why
from services.replica_worker.tiers.errors import AdapterFailed, AdapterUnavailable, EffectWrong
from shared.messages.desired import AdapterRecord
from shared.runtime.clock import Clock
from shared.runtime.logs import get_logger

_log = get_logger(__name__)


class Past:
    """`check` raises AdapterFailed for what can never be had here; `on_lost` is told of stored bytes that nobody
    can load."""

    def __init__(
        self,
        clock: Clock,
        check: Callable[[AdapterRecord], None],
        on_lost: Callable[[AdapterRecord, str, str], None],
    ) -> None:
        self.failures = FailureMemory()
        self._clock = clock
        self._check = check
        self._on_lost = on_lost

    def refuse_known(self, record: AdapterRecord) -> None:
        """Raises AdapterFailed for what has failed a short while ago and would fail again."""
        failure = self.failures.blocking(record.key, self._clock.now_s())
        if failure is not None and failure.why.final:
            raise AdapterFailed(failure.why.reason, elsewhere=failure.why.elsewhere)

    @contextmanager
    def remembering(self, record: AdapterRecord) -> Iterator[None]:
        """A try, however it ends."""
        try:
            self._check(record)
            yield
        except Exception as error:
            self._remember(record, error)
            raise
        self._forgive(record)

    def on_proof(self, record: AdapterRecord, error: Exception | None) -> None:
        if error is None:
            self.failures.forgive(record.key)
        else:
            self._remember(record, error)

    def _remember(self, record: AdapterRecord, error: Exception) -> None:
        now_s = self._clock.now_s()
        if self.failures.blocking(record.key, now_s) is not None:
            return  # one failure, however many waited for it
        if isinstance(error, AdapterFailed | AdapterUnavailable) and error.lost:
            self._on_lost(record, error.lost, str(error))
        why = _why(error)
        self.failures.record(record.key, why, now_s)
        _log.warning("an adapter cannot be had", adapter_id=record.adapter_id, reason=why.reason, final=why.final)

    def _forgive(self, record: AdapterRecord) -> None:
        """It came as far as it was wanted. What it did in a slot only a proof can make good."""
        failure = self.failures.of(record.key)
        if failure is not None and not failure.why.quarantine:
            self.failures.forgive(record.key)


def _why(error: Exception) -> Why:
    if isinstance(error, AdapterFailed):
        quarantine = isinstance(error, EffectWrong)
        return Why(reason=str(error), final=True, elsewhere=error.elsewhere, quarantine=quarantine)
    return Why(reason=str(error), final=False)
