"""What a probe that runs on counts for Prometheus."""

from __future__ import annotations

from services.console.core.probing import VERDICTS
from shared.runtime.metrics import Metrics


class Meters:
    def __init__(self, metrics: Metrics) -> None:
        self.answers = metrics.counter("answers_total", "Answers of canaries and the base, by verdict", ["verdict"])
        for verdict in VERDICTS:  # or the first wrong answer would be no increase of anything
            self.answers.labels(verdict)
        self.answer_s = metrics.histogram("answer_seconds", "From the question to the end of the answer")
        self.answered_at_s = metrics.gauge("last_answer_timestamp_seconds", "When the last answer came, since 1970")
