"""What hybrid tables may say, and what is told to those who say something wrong. No server, no client library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowrun.api.changelog import ChangelogMode
from flowrun.api.connector import Comparison
from flowrun.api.source import Boundedness
from flowrun.connectors.filesystem.source import FileSource
from flowrun.connectors.kafka.offsets import ScanMode
from flowrun.connectors.kafka.source import KafkaSource
from flowrun.core.row_errors import OnError
from flowrun.errors import OptionError, PipelineError
from flowrun.masking import masked
from flowrun.runners.compile import compile_pipeline
from tests.connectors.hybrid.tables import BEGIN_MS, files, reference, source, stamp

TOPIC = {
    "live.connector": "kafka", "live.topic": "t", "live.properties.bootstrap.servers": "127.0.0.1:1", "live.format": "json",
}  # fmt: skip
EARLIEST = {"live.scan.startup.mode": "earliest-offset"}
SWITCH = {"switch-time": stamp(600)}


@pytest.fixture
def old(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "old").mkdir()
    return files("history", tmp_path / "old")


def test_the_switch_time_bounds_both_sources(old: dict[str, str]) -> None:
    made = source(reference("history,live", old, TOPIC, SWITCH))
    history, live = made.parts
    assert (history.begin_ms, history.end_ms, live.begin_ms, live.end_ms) == (
        None, BEGIN_MS + 600_000, BEGIN_MS + 600_000, None,
    )  # fmt: skip
    assert isinstance(live.source, KafkaSource)
    assert live.source.scan.startup.mode is ScanMode.TIMESTAMP
    assert live.source.scan.startup.timestamp_ms == BEGIN_MS + 300_000, "five minutes earlier"
    assert isinstance(history.source, FileSource)
    (hint,) = history.source.request.filters
    assert (hint.column, hint.comparison, hint.value) == ("ts", Comparison.LT, BEGIN_MS + 600_000)
    assert made.boundedness is Boundedness.UNBOUNDED


def test_the_slack_says_how_much_earlier_messages_are_read(old: dict[str, str]) -> None:
    made = source(reference("history,live", old, TOPIC, SWITCH, switch_slack="90 s"))
    assert isinstance(made.parts[1].source, KafkaSource)
    assert made.parts[1].source.scan.startup.timestamp_ms == BEGIN_MS + 510_000


def test_without_a_switch_time_sources_begin_and_end_where_they_say(old: dict[str, str]) -> None:
    made = source(reference("history,live", old, TOPIC, EARLIEST, timed=False))
    assert [(p.begin_ms, p.end_ms) for p in made.parts] == [(None, None)] * 2
    assert isinstance(made.parts[1].source, KafkaSource)
    assert made.parts[1].source.scan.startup.mode is ScanMode.EARLIEST


def test_errors_of_records_are_handled_alike_in_all_sources(old: dict[str, str]) -> None:
    made = source(reference("history,live", old, TOPIC, SWITCH, {"format.on-error": "skip"}))
    assert isinstance(made.parts[0].source, FileSource)
    assert isinstance(made.parts[1].source, KafkaSource)
    assert made.parts[0].source.error_mode is made.parts[1].source.on_error is OnError.SKIP


def test_changes_follow_rows_where_each_source_says_where_it_begins(old: dict[str, str]) -> None:
    changes = {**TOPIC, **EARLIEST, "live.format": "debezium-json"}
    made = source(reference("history,live", old, changes, timed=False))
    assert made.changelog_mode is ChangelogMode.RETRACT
    upserts = {k: v for k, v in TOPIC.items() if k != "live.format"}
    upserts |= {"live.connector": "upsert-kafka", "live.key.format": "json", "live.value.format": "json"}
    table = reference("history,live", old, upserts, timed=False)
    made = source(type(table)(**{**{n: getattr(table, n) for n in table.__slots__}, "primary_key": ("id",)}))
    assert made.changelog_mode is ChangelogMode.UPSERT


@pytest.mark.parametrize(
    ("changed", "timed", "option", "message"),
    [
        ({"source-identifiers": "history"}, True, "source-identifiers", "names one source only"),
        ({"source-identifiers": "history,history"}, True, "source-identifiers", "names 'history' twice"),
        ({"source-identifiers": "history,a-b"}, True, "source-identifiers", "'a-b' in 'source-identifiers' is no name"),
        (
            {"source-identifiers": "live,history", "switch-time": None, **EARLIEST}, True, "live.connector",
            "'live' has no end, so that 'history'",
        ),
        ({"history.connector": "filesytem"}, True, "history.connector", "source 'history': there is no connector 'filesytem'"),
        ({"history.connector": "print"}, True, "history.connector", "source 'history': connector 'print' is no source"),
        ({"history.connector": "hybrid"}, True, "history.connector", "cannot be in another one"),
        ({"history.connector": None}, True, "history.connector", "needs option 'history.connector'"),
        ({"history.format": None}, True, "history.format", "needs a format"),
        ({"history.format": "jsn"}, True, "history.format", "has no format 'jsn'"),
        ({"history.pth": "x"}, True, "history.pth", "has no option 'history.pth'"),
        ({"history.path": "nowhere"}, True, "history.path", "source 'history': .*nowhere"),
        ({"live.format.on-error": "skip"}, True, "live.format.on-error", "has no option 'live.format.on-error'"),
        ({"switch-time": "soon"}, True, "switch-time", "expects a point in time, got 'soon'"),
        ({"switch-time": "2026-01-01,2026-01-02"}, True, "switch-time", "has 2 times, but there is one switch"),
        ({"switch-slack": "-1s"}, True, "switch-slack", "expects a duration"),
        ({}, False, "switch-time", "by their event time, which table 'rows_in' does not have"),
        (EARLIEST, True, "live.scan.startup.mode", "'live.scan.startup.mode' and 'switch-time' exclude each other"),
        ({"live.format": "debezium-json"}, True, "switch-time", "'live' gives changes of rows"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_said_at_the_option(
    old: dict[str, str], changed: dict[str, Any], timed: bool, option: str, message: str
) -> None:
    given = {**old, **TOPIC, **SWITCH, **changed}
    table = reference("history,live", {k: v for k, v in given.items() if v is not None}, timed=timed)
    with pytest.raises(OptionError, match=message) as raised:
        source(table)
    assert raised.value.option == option


def test_times_of_three_sources_ascend(old: dict[str, str], tmp_path: Path) -> None:
    table = reference("history,b,live", old, files("b", tmp_path), TOPIC, switch_time=f"{stamp(9)},{stamp(9)}")
    with pytest.raises(OptionError, match="must ascend"):
        source(table)


SCRIPT = """
CREATE TABLE rows_in (id BIGINT, ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR ts AS ts) WITH (
  'connector' = 'hybrid', 'source-identifiers' = 'history,live', 'switch-time' = '2026-01-01',
  'history.connector' = 'filesystem', 'history.path' = '.', 'history.format' = 'json',
  'live.connector' = 'kafka', 'live.topic' = 't', 'live.properties.bootstrap.servers' = 'h:1',
  'live.properties.sasl.password' = 'hidden-word', 'live.frmat' = 'json');
CREATE TABLE gone (id BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO gone SELECT id FROM rows_in;
"""


def test_a_problem_stands_where_the_option_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sql").write_text(SCRIPT)
    with pytest.raises(PipelineError) as raised:
        compile_pipeline(tmp_path / "job.sql", {}, {})
    (problem,) = raised.value.diagnostics
    assert problem.location is not None
    assert (problem.location.line, problem.hint) == (
        6,
        "did you mean 'live.format' or 'live.key.format' or 'live.value.format'?",
    )


def test_secrets_of_a_source_are_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sql").write_text(SCRIPT.replace("live.frmat", "live.format"))
    compiled = compile_pipeline(tmp_path / "job.sql", {}, {})
    assert "hidden-word" not in masked("sasl: hidden-word")
    (scan,) = [v.operators[0].source for v in compiled.job_graph.vertices if v.operators[0].source is not None]
    assert scan.event_time is not None  # type: ignore[attr-defined]
    assert (scan.event_time.columns, scan.event_time.column) == (("ms",), None)  # type: ignore[attr-defined]


def test_a_document_says_it_in_mappings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = """
sources:
  rows_in:
    connector: hybrid
    source-identifiers: history,live
    switch-time: 2026-01-01
    history: {connector: filesystem, path: ., format: json}
    live: {connector: kafka, topic: t, properties.bootstrap.servers: "h:1", frmat: json}
    schema: {id: BIGINT, ts: TIMESTAMP(3)}
    watermark: {column: ts, delay: 5s}
sinks:
  gone: {from: rows_in, connector: blackhole}
"""
    (tmp_path / "job.yaml").write_text(text)
    with pytest.raises(PipelineError) as raised:
        compile_pipeline(tmp_path / "job.yaml", {}, {})
    (problem,) = raised.value.diagnostics
    assert problem.location is not None
    assert (problem.location.line, problem.hint) == (
        8,
        "did you mean 'live.format' or 'live.key.format' or 'live.value.format'?",
    )
    (tmp_path / "job.yaml").write_text(text.replace("frmat", "format"))
    assert compile_pipeline(tmp_path / "job.yaml", {}, {}).runs
