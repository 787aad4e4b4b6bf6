"""Traces by OpenTelemetry: the extra `tracing`. Spans are sent in the background; what cannot be sent is dropped."""

from __future__ import annotations

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span as Spanned
from opentelemetry.trace import Tracer as Tracing
from opentelemetry.trace import set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from shared.runtime.tracing import Attribute, Span

_PROPAGATOR = TraceContextTextMapPropagator()


class OtelTracer:
    """Nothing of it is global: two services in one process keep their spans apart."""

    def __init__(self, service: str, processor: SpanProcessor) -> None:
        provider = TracerProvider(resource=Resource.create({"service.name": f"lorafleet-{service}"}))
        provider.add_span_processor(processor)
        self._tracer = provider.get_tracer("lorafleet")

    def begin(self, name: str, traceparent: str, at_s: float) -> Span:
        context = _PROPAGATOR.extract({"traceparent": traceparent})
        return _OtelSpan(self._tracer, self._tracer.start_span(name, context, start_time=_ns(at_s)))


class _OtelSpan:
    def __init__(self, tracer: Tracing, span: Spanned) -> None:
        self._tracer = tracer
        self._span = span

    @property
    def traceparent(self) -> str:
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, set_span_in_context(self._span))
        return carrier.get("traceparent", "")

    def part(self, name: str, began_at_s: float, ended_at_s: float) -> None:
        part = self._tracer.start_span(name, set_span_in_context(self._span), start_time=_ns(began_at_s))
        part.end(_ns(ended_at_s))

    def end(self, at_s: float, **attributes: Attribute) -> None:
        self._span.set_attributes({f"lorafleet.{name}": value for name, value in attributes.items()})
        self._span.end(_ns(at_s))


def otlp_tracer(service: str, endpoint: str) -> OtelTracer:
    """Spans go to `endpoint`, such as http://127.0.0.1:4318/v1/traces."""
    return OtelTracer(service, BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))


def _ns(at_s: float) -> int:
    return int(at_s * 1e9)
