"""`GET /metrics`: what Prometheus reads of running jobs, by the parser of its own library."""

from __future__ import annotations

import http.client
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from flowrun.masking import learn_secret
from flowrun.rest.metric_names import BY_FAMILY, METRICS, METRICS_MEDIA_TYPE, MetricScope
from flowrun.rest.metrics import LONGEST_LABEL, ListedJob, exposition, family_of
from flowrun.runtime.checkpoint.records import CheckpointedOperator, CheckpointedVertex, CheckpointRecord
from flowrun.runtime.job_details import HistogramSummary, JobDetails, OperatorMetrics, SubtaskDetails
from flowrun.runtime.lifecycle import ExecutionState
from tests.rescalable_jobs import start_rescalable
from tests.rest.control_fakes import FakeJob, controlled
from tests.rest.scraping import Series, parsed, values

PIPELINE = """
name: counted
settings:
  parallelism: 2
  batch_rows: 64
  checkpoint: {{interval: 50ms, dir: '{folder}/state'}}
sources:
  rows:
    connector: datagen
    schema: {{id: BIGINT, k: INT, at: TIMESTAMP(3)}}
    watermark: {{column: at, delay: 1s}}
    number-of-rows: 1000000
    rows-per-second: 4000
    fields.k.min: 0
    fields.k.max: 9
steps:
  sums: {{from: rows, key_by: [k], aggregate: [COUNT(*) AS n]}}
sinks:
  out: {{from: sums, connector: blackhole}}
"""


def with_subtask(details: JobDetails, **changed: object) -> JobDetails:
    """The job with its first subtask changed."""
    vertex = details.vertices[0]
    subtask = replace(vertex.subtasks[0], **changed)  # type: ignore[arg-type]
    return replace(details, vertices=(replace(vertex, subtasks=(subtask,)), *details.vertices[1:]))


def with_metrics(details: JobDetails, counters: Mapping[str, int], gauges: Mapping[str, float | None]) -> JobDetails:
    operator = details.vertices[0].subtasks[0].operators[0]
    return with_subtask(details, operators=(OperatorMetrics(operator.operator_id, counters, gauges),))


def test_names_kinds_and_values() -> None:
    series = parsed(exposition([FakeJob().details()]))
    assert values(series, "flowrun_job_state", state="running", job_name="orders") == [1]
    assert sum(values(series, "flowrun_job_state")) == 1
    assert values(series, "flowrun_job_numRestarts_total") == [2]
    assert values(series, "flowrun_job_numberOfCompletedCheckpoints_total") == [7]
    assert values(series, "flowrun_job_lastCheckpointDuration") == [12.5]
    assert values(series, "flowrun_job_lastCheckpointCompletedTimestamp") == [1_012.5]
    assert values(series, "flowrun_job_checkpointInterval") == [1_000]
    assert values(series, "flowrun_operator_numLateRecordsDropped_total", vertex_id="s", subtask="0") == [1]
    assert values(series, "flowrun_numRunningJobs") == [1]
    assert values(series, "process_resident_memory_bytes")[0] > 1e6


def test_what_is_not_there_has_no_series() -> None:
    series = parsed(exposition([with_subtask(FakeJob(takes_checkpoints=False).details(), worker=None)]))
    names = {name for name, _ in series}
    assert not [n for n in names if "Watermark" in n or n == "flowrun_task_watermarkLag"]
    assert "flowrun_operator_lag" not in names, "a gauge that says nothing now"
    assert not [n for n in names if n.startswith("flowrun_job_lastCheckpoint")]
    assert not [labels for _, labels in series if "worker" in dict(labels)]


def test_watermarks_at_the_end_and_before_the_beginning_are_none() -> None:
    details = FakeJob().details()
    for value in (MIN_TIMESTAMP, MAX_TIMESTAMP):
        found = with_metrics(
            with_subtask(details, gauges={"currentInputWatermark": value}), {}, {"currentOutputWatermark": value}
        )
        assert not [n for n, _ in parsed(exposition([found])) if "Watermark" in n]
    found = with_subtask(details, gauges={"currentInputWatermark": 500}, watermark=500, worker="w-1")
    series = parsed(exposition([found]))
    assert values(series, "flowrun_task_currentInputWatermark", worker="w-1", subtask="0") == [500]
    assert values(series, "flowrun_task_watermarkLag", worker="w-1") == [1_500]


def test_state_sizes_are_those_of_the_last_completed_checkpoint() -> None:
    details = FakeJob().details()
    operator = details.vertices[0].operators[0].operator_id
    taken = CheckpointedVertex(
        "s", 1, operators=(CheckpointedOperator(operator, 4_096, 12), CheckpointedOperator("gone", 1, 1))
    )
    checkpoints = tuple(
        CheckpointRecord(n, "checkpoint", status, 0, 1.0, 1, 1, vertices=vertices)
        for n, status, vertices in (
            (1, "completed", ()),
            (2, "completed", (taken,)),
            (3, "failed", ()),
            (4, "in progress", ()),
        )
    )
    series = parsed(exposition([replace(details, checkpoints=checkpoints)]))
    assert values(series, "flowrun_operator_stateSize") == [4_096]
    assert values(series, "flowrun_operator_stateRows", operator_id=operator) == [12]


HOSTILE = 'a"b\\c\nd} 1\r\n# TYPE x counter\x1b[2J\u202e\ud800 ' + "x" * 10_000


def test_hostile_names_do_not_leave_their_labels() -> None:
    details = FakeJob().details()
    vertex = details.vertices[0]
    operator = replace(vertex.operators[0], name=HOSTILE)
    named = replace(
        vertex, status=replace(vertex.status, name=HOSTILE, latency_ms={HOSTILE: (1.0, 2.0)}), operators=(operator,)
    )
    hostile = replace(details, status=replace(details.status, name=HOSTILE), vertices=(named, *details.vertices[1:]))
    hostile = with_metrics(hostile, {HOSTILE: 1, HOSTILE + "2": 2, "": 3, ".": 4}, {HOSTILE: 1.0})
    series = parsed(exposition([hostile]))
    assert "x" not in {name for name, _ in series}
    assert len(values(series, "flowrun_job_state", state="running")) == 1
    longest = max(len(value) for _, labels in series for _, value in labels)
    assert longest <= LONGEST_LABEL
    assert {name for name, _ in series if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name)} == set()


def test_metrics_of_users_are_told_apart_whatever_their_names_become() -> None:
    names = ["a.b", "a-b", "a_b", "a_b_total", "a_b.total", "a b", "numRecordsIn", "é", "è"]
    details = with_metrics(FakeJob().details(), dict.fromkeys(names, 1), dict.fromkeys(names, 2.0) | {"text": "no"})  # type: ignore[dict-item]
    series = parsed(exposition([details]))
    assert len([key for key in series if key[0].startswith("flowrun_operator_") and series[key] == 1]) >= len(names)
    assert len([key for key in series if key[0].startswith("flowrun_operator_") and series[key] == 2]) == len(names)
    assert not [name for name, _ in series if "text" in name]


def test_histograms_of_users_are_quantiles_and_a_count() -> None:
    details = FakeJob().details()
    operator = details.vertices[0].subtasks[0].operators[0]
    measured = replace(operator, histograms={"paid": HistogramSummary(200, 1.0, 5.0, 9.0)})
    series = parsed(exposition([with_subtask(details, operators=(measured,))]))
    assert values(series, "flowrun_operator_paid", quantile="0.95", subtask="0") == [5.0]
    assert len(values(series, "flowrun_operator_paid")) == 3
    assert values(series, "flowrun_operator_paid_count_total") == [200]


def test_secrets_are_masked_and_numbers_are_not() -> None:
    learn_secret("orders")
    learn_secret("2")
    series = parsed(exposition([FakeJob().details()]))
    assert values(series, "flowrun_job_numRestarts_total", job_name="***") == [2]


def test_a_job_that_is_over_has_its_state_only() -> None:
    series = parsed(exposition([ListedJob("j", "orders", "failed")]))
    assert values(series, "flowrun_job_state", state="failed") == [1]
    assert {name for name, labels in series if ("job_id", "j") in labels} == {"flowrun_job_state"}


def test_one_scrapes_with_the_token(tmp_path: Path) -> None:
    with controlled(FakeJob(), tmp_path / "run") as endpoint:
        assert scraped(endpoint.entry.port, "")[0] == 401
        status, text, kind = scraped(endpoint.entry.port, endpoint.entry.token)
    assert (status, kind) == (200, METRICS_MEDIA_TYPE)
    assert values(parsed(text), "flowrun_job_state", state="running") == [1]


def scraped(port: int, token: str) -> tuple[int, bytes, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"} if token else {})
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, text, response.headers["Content-Type"]


def counters(series: Series) -> Series:
    """Without the worker: another one may run a subtask after a restart."""
    found: Series = {}
    for (name, labels), value in series.items():
        if name.endswith("_total") and name.startswith("flowrun"):
            key = (name, frozenset(label for label in labels if label[0] != "worker"))
            found[key] = value
    return found


@pytest.mark.exhaustive
def test_counters_only_grow_over_restarts_and_rescaling(tmp_path: Path) -> None:
    file = tmp_path / "counted.yaml"
    file.write_text(PIPELINE.format(folder=tmp_path))
    with start_rescalable(file, tmp_path / "state") as job:
        seen: list[Series] = []

        def look() -> Series:
            job.wait(100)
            seen.append(parsed(exposition([job.details()])))
            return seen[-1]

        def rows(least: float) -> bool:
            return sum(values(look(), "flowrun_task_numRecordsIn_total")) > least

        while not rows(2_000) or not values(seen[-1], "flowrun_operator_stateSize"):
            pass
        assert values(seen[-1], "flowrun_task_watermarkLag")
        job.fail(RuntimeError("struck"))
        while not values(look(), "flowrun_job_numRestarts_total")[0]:
            pass
        job.rescale(1).wait(30_000)
        job.rescale(2).wait(30_000)
        before = sum(values(look(), "flowrun_task_numRecordsIn_total"))
        while not rows(before + 1_000):
            pass
        job.cancel()
        job.wait(30_000)
    last: Series = {}
    for series in map(counters, seen):
        assert [key for key, value in series.items() if value < last.get(key, 0)] == []
        last |= series
    known = {name for name, _ in seen[-1] if name.startswith("flowrun")}
    assert [n for n in known if n.removesuffix("_total") not in BY_FAMILY] == [], (
        "docs/reference/metrics.md names them all"
    )


FLOWRUN = Path(__file__).parents[2] / "flowrun"


COUNTED = re.compile(r"""metrics\.(?:counter|gauge)\((f?"[^"]+"|[A-Z_]+)""")
# Names that the code puts together.
PUT_TOGETHER = {"_NAMES", "numRecordsOut.{tag.name}", "currentInput{number}Watermark"}
CONSTANT = re.compile(r"""^([A-Z_]+) = "([^"]+)"$""", re.MULTILINE)


def counted_names() -> set[str]:
    """The names of counters and gauges of the engine, operators and connectors, as the code writes them."""
    folders = [FLOWRUN / name for name in ("runtime", "operators", "connectors")]
    texts = [path.read_text(encoding="utf-8") for folder in folders for path in folder.rglob("*.py")]
    constants = {name: value for text in texts for name, value in CONSTANT.findall(text)}
    found = {name for text in texts for name in COUNTED.findall(text)}
    names = {constants.get(name, re.sub('^f?"|"$', "", name)) for name in found} - PUT_TOGETHER
    assert [name for name in names if name.isupper()] == []
    return names


def test_each_metric_of_the_code_is_documented() -> None:
    names = counted_names()
    assert len(names) > 20
    known = {m.name for m in METRICS if m.scope in (MetricScope.OPERATOR, MetricScope.TASK)}
    assert sorted(n for n in names if family_of(n, is_counter=True)[0] not in known) == []


def test_a_subtask_that_has_not_begun_is_told_as_it_is() -> None:
    subtask = SubtaskDetails(0, 0, "s-0", ExecutionState.CREATED, 1_000)
    details = FakeJob().details()
    found = replace(details, vertices=(replace(details.vertices[0], subtasks=(subtask,)),))
    assert values(parsed(exposition([found])), "flowrun_task_numRecordsIn_total") == [0]
