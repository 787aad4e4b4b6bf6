"""Traces: what one request did where, joined by W3C's `traceparent`. By default there are none."""

from __future__ import annotations

from typing import Protocol

from shared.runtime.settings import SettingsError

Attribute = str | int | float | bool


class Span(Protocol):
    """Something that takes time in one service. Times are seconds since 1970."""

    @property
    def traceparent(self) -> str:
        """What the next service is told, so that its spans hang below this one; "": nothing is traced."""

    def part(self, name: str, began_at_s: float, ended_at_s: float) -> None:
        """A stretch of it that is over."""

    def end(self, at_s: float, **attributes: Attribute) -> None:
        """Once, and nothing after it."""


class Tracer(Protocol):
    def begin(self, name: str, traceparent: str, at_s: float) -> Span:
        """A span below that of `traceparent`; of a new trace if that is "" or no traceparent."""


class _NoSpan:
    traceparent = ""

    def part(self, name: str, began_at_s: float, ended_at_s: float) -> None:
        return None

    def end(self, at_s: float, **attributes: Attribute) -> None:
        return None


class _NoTracer:
    def begin(self, name: str, traceparent: str, at_s: float) -> Span:
        return NO_SPAN


NO_SPAN: Span = _NoSpan()
NO_TRACER: Tracer = _NoTracer()


def tracer_to(endpoint: str, service: str) -> Tracer:
    """Sends spans to an OTLP endpoint, such as http://127.0.0.1:4318/v1/traces; "": nothing is traced. Raises
    SettingsError if the extra `tracing` is not installed."""
    if not endpoint:
        return NO_TRACER
    try:
        from shared.runtime.tracing_otel import otlp_tracer
    except ImportError as error:
        raise SettingsError(f"traces need the extra `tracing` (pip install 'lorafleet[tracing]'): {error}") from error
    return otlp_tracer(service, endpoint)
