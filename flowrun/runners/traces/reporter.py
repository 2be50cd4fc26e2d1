"""Sends the spans of a job to a collector of OpenTelemetry, over OTLP/HTTP. The `OTEL_…` variables of its SDK say where and how."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from flowrun import __version__
from flowrun.api.client_library import ClientLibrary
from flowrun.masking import masked
from flowrun.runners.traces.spans import EndedSpans, JobSpan
from flowrun.runtime.job_details import JobDetails

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

OTEL = ClientLibrary("otel", ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter"))
NEEDED_BY = "the setting telemetry.traces"
_LOOK_S = 1.0
_LAST_WORDS_MS = 3_000
"""How long the end of a job waits for a collector that does not answer."""

_log = logging.getLogger(__name__)


class TracedJob(Protocol):
    """What is traced."""

    @property
    def job_id(self) -> str: ...

    def details(self) -> JobDetails: ...


def check_library() -> None:
    """Pass if traces can be sent.

    Raises:
        SetupError: the package for it is not installed, or cannot be imported.
    """
    for module in OTEL.modules:
        OTEL.module(module, NEEDED_BY)


@contextmanager
def reporting(job: TracedJob, name: str) -> Iterator[None]:
    """A context in which the spans of a job are sent; see `flowrun.runners.traces.traced`.

    Args:
        job: to be traced.
        name: of the pipeline.

    Raises:
        SetupError: as `check_library`.
    """
    reporter = _Reporter(job, name)
    try:
        yield
    finally:
        reporter.close()


class _Reporter:
    """A thread that looks at the job each second."""

    def __init__(self, job: TracedJob, name: str) -> None:
        self._job = job
        self._spans = EndedSpans()
        self._provider = _provider(job.job_id, name)
        self._tracer = self._provider.get_tracer("flowrun", __version__)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flowrun-traces", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send what is left, and end. Blocks for `_LAST_WORDS_MS` at most, beside a look at the job."""
        self._ended.set()
        self._thread.join()
        closing = threading.Thread(target=self._provider.shutdown, name="flowrun-traces-end", daemon=True)
        closing.start()
        closing.join(_LAST_WORDS_MS / 1000)

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self._look()
        self._look()

    def _look(self) -> None:
        try:
            for span in self._spans.since_last(self._job.details()):
                _send(self._tracer, span)
        except Exception:
            _log.exception("the job's spans cannot be reported")


def _provider(job_id: str, name: str) -> TracerProvider:
    check_library()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    about = {"flowrun.job.id": job_id, "flowrun.job.name": masked(name), "service.version": __version__}
    if "OTEL_SERVICE_NAME" not in os.environ and "service.name" not in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        about["service.name"] = "flowrun"
    provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def _send(tracer: Tracer, span: JobSpan, parent: Context | None = None) -> None:
    """Hand a span and those within it to the SDK, whose own thread sends them."""
    from opentelemetry.context import Context
    from opentelemetry.trace import Status, StatusCode, set_span_in_context

    attributes = {n: masked(v) if isinstance(v, str) else v for n, v in span.attributes.items()}
    made = tracer.start_span(span.name, parent or Context(), attributes=attributes, start_time=int(span.start_ms * 1e6))
    if span.error is not None:
        made.set_status(Status(StatusCode.ERROR, masked(span.error)))
    for child in span.children:
        _send(tracer, child, set_span_in_context(made, Context()))
    made.end(int(span.end_ms * 1e6))
