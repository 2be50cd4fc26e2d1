"""Traces of jobs as a collector of OpenTelemetry gets them over HTTP."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.end_to_end.conftest import Command, flowrun, no_thread_is_left_behind, own_registry
from tests.servers.http import HttpServer, Reply

__all__ = ["flowrun", "no_thread_is_left_behind", "own_registry"]

PIPELINE = """
name: traced
settings:
  parallelism: 2
  checkpoint: {{interval: 50ms, dir: '{folder}/state'}}
  {telemetry}
sources:
  rows: {{connector: datagen, schema: {{id: BIGINT}}, number-of-rows: 300, rows-per-second: 600}}
steps:
  told: {{from: rows, map: {{function: 'fails:once', row: true}}}}
sinks:
  out: {{from: told, connector: blackhole}}
"""
FAILS_ONCE = """
import os


def once(row):
    if not os.path.exists("{flag}"):
        open("{flag}", "w").close()
        raise RuntimeError("struck with hunter22")
    return row
"""


@pytest.fixture
def pipeline(tmp_path: Path, http_server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", http_server.url)
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    file = tmp_path / "traced.yaml"
    file.write_text(PIPELINE.format(folder=tmp_path, telemetry="telemetry: {traces: otlp}"))
    (tmp_path / "fails.py").write_text(FAILS_ONCE.format(flag=tmp_path / "struck"))
    yield file
    sys.modules.pop("fails", None)


def spans(server: HttpServer) -> tuple[list[Any], dict[str, str]]:
    """All spans that the collector got, and what they say of their service."""
    found, about = [], {}
    for request in server.received:
        assert (request.method, request.path) == ("POST", "/v1/traces")
        sent = ExportTraceServiceRequest.FromString(request.body)
        for resource in sent.resource_spans:
            about |= {a.key: a.value.string_value for a in resource.resource.attributes}
            found += [span for scope in resource.scope_spans for span in scope.spans]
    return found, about


def attributes(span: Any) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


@pytest.mark.exhaustive
def test_a_collector_gets_starts_restarts_and_checkpoints(
    flowrun: Command, pipeline: Path, http_server: HttpServer
) -> None:
    outcome = flowrun("run", pipeline, "--workers", 0, "--secret-var", "pass=hunter22")
    assert outcome.code == 0, outcome.err
    found, about = spans(http_server)
    assert (about["service.name"], about["flowrun.job.name"]) == ("flowrun", "traced")
    by_name: dict[str, list[Any]] = {}
    for span in found:
        by_name.setdefault(span.name, []).append(span)
        assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
    assert set(by_name) == {"Checkpoint", "Checkpoint_Task", "JobInitialization", "JobInitialization_Task", "Restart"}
    (restart,) = by_name["Restart"]
    assert "struck with ***" in restart.status.message
    assert attributes(restart)["succeeded"] is True
    assert [s.parent_span_id for s in by_name["JobInitialization"]].count(restart.span_id) == 1
    checkpoints = {attributes(s)["checkpointId"]: s for s in by_name["Checkpoint"]}
    assert len(checkpoints) == len(by_name["Checkpoint"]) > 2, "each once"
    assert not any(s.parent_span_id for s in by_name["Checkpoint"])
    roots = {s.span_id: s for s in by_name["Checkpoint"]}
    for task in by_name["Checkpoint_Task"]:
        parent = roots[task.parent_span_id]
        assert task.trace_id == parent.trace_id
        assert (
            parent.start_time_unix_nano
            <= task.start_time_unix_nano
            <= task.end_time_unix_nano
            <= parent.end_time_unix_nano
        )
    assert all(b"hunter22" not in request.body for request in http_server.received)


@pytest.mark.exhaustive
@pytest.mark.parametrize("how", ["gone", "hangs"])
def test_a_collector_that_does_not_answer_costs_the_job_nothing(
    flowrun: Command, pipeline: Path, http_server: HttpServer, tmp_path: Path, how: str
) -> None:
    (tmp_path / "struck").touch()
    hangs = threading.Event()
    if how == "gone":
        http_server.stop()
    else:
        http_server.answer = lambda _: Reply(late=hangs)
    outcome = flowrun("run", pipeline, "--workers", 0)
    hangs.set()
    assert outcome.code == 0, outcome.err
    assert "300 rows read" in outcome.err


def test_nothing_is_sent_unless_it_is_asked_for(
    flowrun: Command, pipeline: Path, http_server: HttpServer, tmp_path: Path
) -> None:
    (tmp_path / "struck").touch()
    assert flowrun("run", pipeline, "--workers", 0, "--set", "settings.telemetry.traces=none").code == 0
    assert http_server.received == []


def test_a_missing_package_is_told_before_anything_runs(
    flowrun: Command, pipeline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [m for m in sys.modules if m.startswith("opentelemetry.sdk")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    monkeypatch.setattr(
        "flowrun.api.client_library.ClientLibrary.is_installed", property(lambda self: self.extra != "otel")
    )
    outcome = flowrun("run", pipeline, "--workers", 0)
    assert outcome.code == 2
    assert "the setting telemetry.traces needs the Python package opentelemetry" in outcome.err
    assert "pip install 'flowrun-streaming[otel]'" in outcome.err
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("SET 'flowrun.telemetry.traces' = 'otlp';", 0),
        ("SET 'traces.reporters' = 'otel';", 0),
        ("SET 'traces.reporters' = 'jaeger';", 2),
    ],
)
def test_sql_says_it_too(flowrun: Command, tmp_path: Path, said: str, code: int) -> None:
    script = tmp_path / "script.sql"
    script.write_text(
        f"{said}\nCREATE TABLE t (x INT) WITH ('connector' = 'datagen', 'number-of-rows' = '1');\nSELECT x FROM t;"
    )
    outcome = flowrun("validate", script)
    assert outcome.code == code, outcome.err
    assert ("jaeger" in outcome.err) is (code == 2)
