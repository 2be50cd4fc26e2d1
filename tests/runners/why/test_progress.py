"""Checkpoints, restarts, slots, bottlenecks, skew and state: each once as the true cause, once not."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from flowrun.api.sink import WriterContext
from flowrun.api.source import Delivery
from flowrun.connectors.stateless_sink import ImmediateWriter
from flowrun.core.clock import SystemClock
from flowrun.core.elements import RecordBatch
from flowrun.core.recovery import RestartSettings
from flowrun.core.schema import Schema
from flowrun.errors import StateError
from flowrun.graph.job_graph import JobGraph
from flowrun.operators.factories import SinkOperatorFactory
from flowrun.runners.embedded import start_embedded
from flowrun.runners.why.finding import Severity, Thresholds
from flowrun.runners.why.rules import findings
from flowrun.runtime.checkpoint.records import CheckpointedVertex, CheckpointRecord
from flowrun.runtime.job_details import JobDetails
from flowrun.runtime.local_cluster import LocalCluster
from tests.runners.why.jobs import (
    AT_ONCE,
    ORDERS,
    PAYMENTS,
    all_run,
    by_kind,
    found_in,
    job_graph,
    one,
    order,
    payment,
    read,
    records_in,
    running,
    until,
)

pytestmark = pytest.mark.exhaustive

SINK = "CREATE TABLE s (id BIGINT, n BIGINT) WITH ('connector' = 'blackhole');\n"
COPY = ORDERS + SINK + "INSERT INTO s SELECT id, amount FROM orders;"
TO_FILES = (
    ORDERS
    + """
CREATE TABLE f (id BIGINT) WITH ('connector' = 'filesystem', 'path' = '${OUT}', 'format' = 'json');
INSERT INTO f SELECT id FROM orders;
"""
)


def test_rows_of_a_sink_that_shows_them_with_the_first_checkpoint(tmp_path: Path) -> None:
    sources = {"orders": {"p0": [[order(1, 1), order(2, 2)]]}}
    graph = job_graph(tmp_path, TO_FILES, sources, checkpoint__interval="10m", checkpoint__dir=str(tmp_path / "state"))
    with running(graph) as job:
        until(job, read({"f": 2}))
        cause = one(by_kind(findings(job.details(), AT_ONCE)), "waits_for_checkpoint")
        assert cause.severity is Severity.BLOCKS
        assert (cause.figures["records"], cause.figures["interval_ms"]) == (2, 600_000)
        assert "10 min 0 s" in cause.text
        job.take_snapshot(savepoint=False).wait(10_000)
        assert "waits_for_checkpoint" not in by_kind(findings(job.details(), AT_ONCE))


def test_checkpoints_that_fail_say_why(tmp_path: Path) -> None:
    sources = {"orders": {"p0": [[order(1, 1)]]}}
    state = tmp_path / "state"
    graph = job_graph(tmp_path, TO_FILES, sources, checkpoint__interval="10m", checkpoint__dir=str(state))
    graph = replace(
        graph, settings=replace(graph.settings, checkpoint=replace(graph.settings.checkpoint, timeout_ms=1))
    )
    with running(graph) as job:
        until(job, read({"f": 1}))
        with pytest.raises(StateError):
            job.take_snapshot(savepoint=False).wait(10_000)
        details = until(job, lambda d: any(c.status == "failed" for c in d.checkpoints))
        cause = one(by_kind(findings(details, AT_ONCE)), "checkpoints_fail")
    assert cause.severity is Severity.BLOCKS, "the sink shows nothing without them"
    assert cause.figures["failure"]
    assert "sink 'f'" in cause.text


def test_a_job_that_restarts_says_what_fails(tmp_path: Path) -> None:
    text = ORDERS + SINK + "INSERT INTO s SELECT id, 10 / amount FROM orders;"
    graph = job_graph(tmp_path, text, {"orders": {"p0": [[order(1, 1, amount=0)]]}})
    restart = RestartSettings("fixed_delay", attempts=1_000, delay_ms=50)
    graph = replace(graph, settings=replace(graph.settings, restart=restart))
    with running(graph) as job:
        details = until(job, lambda d: d.status.restarts >= 2)
        cause = one(by_kind(findings(details, AT_ONCE)), "restarts")
    assert cause.severity is Severity.BLOCKS
    assert "division by zero" in cause.text
    assert "began at the beginning" in cause.text
    assert cause.figures["operator"] == "s.select"


def test_a_job_that_waits_for_slots(tmp_path: Path) -> None:
    sources = {"orders": {"p0": [[order(1, 1)]]}}
    graph = job_graph(tmp_path, COPY, sources, parallelism="2")
    with LocalCluster(SystemClock(), task_slots=2) as cluster, start_embedded(graph, cluster=cluster) as first:
        until(first, all_run)
        assert "waits_for_slots" not in by_kind(findings(first.details(), AT_ONCE))
        with start_embedded(graph, cluster=cluster) as second:
            details = until(second, lambda d: d.status.waits_for is not None)
            cause = one(by_kind(findings(details, AT_ONCE)), "waits_for_slots")
            assert "needs 2 slots" in cause.text
            second.cancel()
        first.cancel()


def test_one_subtask_that_gets_most_rows_with_the_key_that_they_have(tmp_path: Path) -> None:
    text = (
        ORDERS
        + """
    CREATE TABLE totals (u STRING, n BIGINT) WITH ('connector' = 'blackhole');
    INSERT INTO totals SELECT user_id, LAST_VALUE(amount) FROM orders GROUP BY user_id;
    """
    )
    settings = {"parallelism": "2"}
    users = ["bob" if i % 10 else f"u{i}" for i in range(2_000)]
    skewed = {"orders": {"p0": [[order(i, i, user) for i, user in enumerate(users)]]}}
    level = {"orders": {"p0": [[order(i, i, f"u{i}") for i in range(2_000)]]}}
    limits = Thresholds(skewed_rows=1_000)
    graph = job_graph(tmp_path, text.replace("LAST_VALUE(amount)", "COUNT(DISTINCT id)"), skewed, **settings)
    cause = found_in(graph, {"totals.aggregate": 1_000}, limits)
    told = one(cause, "skewed_keys")
    assert told.severity is Severity.INFORMS, "it keeps up"
    assert "user_id = 'bob'" in told.text
    assert told.figures["key user_id = 'bob'"] == pytest.approx(0.9, abs=0.05)
    assert "skewed_keys" not in found_in(
        job_graph(tmp_path, text, level, **settings), {"totals.aggregate": 1_000}, limits
    )


def test_state_that_grows_with_every_row(tmp_path: Path) -> None:
    text = (
        ORDERS
        + PAYMENTS
        + SINK
        + ("INSERT INTO s SELECT o.id, p.paid FROM orders o JOIN payments p ON o.user_id = p.payer;")
    )
    sources = {
        "orders": {"p0": [[order(i, i, f"u{i}") for i in range(200)]]},
        "payments": {"q0": [[payment(i, i, f"u{i}") for i in range(200)]]},
    }
    graph = job_graph(tmp_path, text, sources)
    join = next(o.name for v in graph.vertices for o in v.operators if "Join" in type(o.factory).__name__)
    cause = one(found_in(graph, {join: 400}), "state_grows")
    assert (cause.severity, cause.figures["entries"]) == (Severity.RISKS, 400)
    assert "about 1.0 for each row" in cause.text
    mortal = job_graph(tmp_path, "SET 'table.exec.state.ttl' = '1 h';" + text, sources)
    assert "state_grows" not in found_in(mortal, {join: 400})
    few = (
        ORDERS
        + """
    CREATE TABLE totals (u STRING, n BIGINT) WITH ('connector' = 'blackhole');
    INSERT INTO totals SELECT user_id, COUNT(*) FROM orders GROUP BY user_id;
    """
    )
    same = {"orders": {"p0": [[order(i, i, f"u{i % 120}") for i in range(2_000)]]}}
    assert "state_grows" not in found_in(job_graph(tmp_path, few, same), {"orders": 2_000})


def details_of(folder: Path) -> JobDetails:
    """A job of two vertices, as it is."""
    text = (
        ORDERS
        + """
    CREATE TABLE totals (u STRING, n BIGINT) WITH ('connector' = 'blackhole');
    INSERT INTO totals SELECT user_id, COUNT(*) FROM orders GROUP BY user_id;
    """
    )
    graph = job_graph(folder, text, {"orders": {"p0": [[order(1, 1)]]}}, parallelism="2")
    with running(graph) as job:
        until(job, all_run)
        return until(job, read({"totals": 1}))


def with_times(details: JobDetails, busy: list[float], pressed: list[float]) -> JobDetails:
    """The same, as if its vertices had worked and waited for so many ms of a second."""
    vertices = tuple(
        replace(
            v,
            status=replace(v.status, busy_ms_per_s=b, back_pressured_ms_per_s=p, max_back_pressured_ms_per_s=p),
            subtasks=tuple(replace(s, busy_ms_per_s=b, back_pressured_ms_per_s=p) for s in v.subtasks),
        )
        for v, b, p in zip(details.vertices, busy, pressed, strict=True)
    )
    return replace(details, vertices=vertices)


def test_the_vertex_for_which_the_others_wait_is_the_bottleneck(tmp_path: Path) -> None:
    details = details_of(tmp_path)
    count = len(details.vertices)
    assert count >= 2
    slow_end = with_times(details, [100.0] * (count - 1) + [990.0], [900.0] * (count - 1) + [0.0])
    cause = one(by_kind(findings(slow_end, Thresholds())), "bottleneck")
    assert cause.vertices[0] == details.vertices[-1].status.vertex_id
    assert cause.figures["busy_ms_per_s"] == 990.0
    assert "waits for room 90 % of the time" in cause.text
    busy = with_times(details, [990.0] * count, [0.0] * count)
    assert "bottleneck" not in by_kind(findings(busy, Thresholds())), "nobody waits for it"


def test_a_source_that_falls_behind_because_of_its_own_chain(tmp_path: Path) -> None:
    details = details_of(tmp_path)
    count = len(details.vertices)
    busy = with_times(details, [950.0] + [100.0] * (count - 1), [0.0] * count)
    source = busy.vertices[0]
    subtasks = tuple(
        replace(
            s,
            operators=(
                replace(s.operators[0], gauges={**s.operators[0].gauges, "pendingRecords": 500}),
                *s.operators[1:],
            ),
        )
        for s in source.subtasks
    )
    behind = replace(busy, vertices=(replace(source, subtasks=subtasks), *busy.vertices[1:]))
    found = by_kind(findings(behind, Thresholds(lagging_records=900)))
    assert one(found, "bottleneck").figures["pending_records"] == 500 * len(subtasks)
    assert one(found, "source_lag").figures["pending_records"] == 500 * len(subtasks)
    assert "source_lag" not in by_kind(findings(behind, Thresholds(lagging_records=1_001)))
    assert "bottleneck" not in by_kind(findings(busy, Thresholds()))


def test_a_checkpoint_that_does_not_come_to_its_end_names_who_is_late(tmp_path: Path) -> None:
    details = details_of(tmp_path)
    first, last = details.vertices[0].status, details.vertices[-1].status
    taken = (CheckpointedVertex(first.vertex_id, first.parallelism),)
    slow = CheckpointRecord(7, "checkpoint", "in progress", 0, 90_000.0, 4, first.parallelism, vertices=taken)
    cause = one(by_kind(findings(replace(details, checkpoints=(slow,)), Thresholds())), "checkpoint_slow")
    assert last.vertex_id in cause.vertices
    assert first.vertex_id not in cause.vertices
    quick = replace(slow, duration_ms=100.0)
    assert "checkpoint_slow" not in by_kind(findings(replace(details, checkpoints=(quick,)), Thresholds()))


def test_checkpoints_that_failed_before_others_that_did_not_are_only_told_of(tmp_path: Path) -> None:
    details = details_of(tmp_path)
    failed = CheckpointRecord(1, "checkpoint", "failed", 0, 5.0, 1, 0, failure="the disk is full")
    later = CheckpointRecord(2, "checkpoint", "completed", 9, 5.0, 1, 1)
    found = by_kind(findings(replace(details, checkpoints=(failed, later)), AT_ONCE))
    told = one(found, "checkpoints_failed")
    assert told.severity is Severity.INFORMS
    assert "number 1: the disk is full." in told.text
    assert "checkpoints_fail" not in found
    newest = by_kind(findings(replace(details, checkpoints=(later, replace(failed, checkpoint_id=3))), AT_ONCE))
    assert "checkpoints_failed" not in newest
    assert "would go back to the last one that is complete" in one(newest, "checkpoints_fail").text
    well = by_kind(findings(replace(details, checkpoints=(later,)), AT_ONCE))
    assert not {"checkpoints_fail", "checkpoints_failed"} & set(well)


def test_findings_are_the_same_for_the_same_details_and_the_worst_come_first(tmp_path: Path) -> None:
    details = details_of(tmp_path)
    found = findings(details, AT_ONCE)
    assert found == findings(details, AT_ONCE)
    order_of = list(Severity)
    assert [order_of.index(f.severity) for f in found] == sorted(order_of.index(f.severity) for f in found)
    assert records_in(details, "totals") == 1


@dataclass(frozen=True)
class SlowSink:
    """Takes a while for each row, so that it is slow however rows come in batches."""

    schema: Schema
    row_s: float
    delivery = Delivery.AT_LEAST_ONCE

    def create_writer(self, context: WriterContext) -> SlowWriter:
        return SlowWriter(self.row_s)

    def create_committer(self) -> None:
        """Nothing to commit."""


class SlowWriter(ImmediateWriter):
    def __init__(self, row_s: float) -> None:
        self._row_s = row_s

    def write(self, batch: RecordBatch) -> None:
        time.sleep(batch.num_rows * self._row_s)


def with_slow_sinks(graph: JobGraph, row_s: float) -> JobGraph:
    vertices = []
    for vertex in graph.vertices:
        operators = [
            replace(
                o,
                factory=replace(o.factory, sink=SlowSink(o.factory.sink.schema, row_s)),
                sink=SlowSink(o.factory.sink.schema, row_s),
            )
            if isinstance(o.factory, SinkOperatorFactory)
            else o
            for o in vertex.operators
        ]
        vertices.append(replace(vertex, operators=tuple(operators)))
    return replace(graph, vertices=tuple(vertices))


def test_a_slow_sink_is_the_bottleneck_of_a_real_job(tmp_path: Path) -> None:
    text = (
        ORDERS
        + """
    CREATE TABLE s (u STRING, n BIGINT) WITH ('connector' = 'blackhole');
    INSERT INTO s SELECT user_id, SUM(amount) FROM orders GROUP BY user_id;
    """
    )
    batches = [[order(i * 500 + j, i, f"u{i}-{j}", 1) for j in range(50)] for i in range(1000)]
    settings = {"local_aggregation": "false", "buffer_timeout": "1ms"}
    graph = with_slow_sinks(job_graph(tmp_path, text, {"orders": {"p0": batches}}, **settings), 0.001)
    with start_embedded(graph, network_slots=16) as job:
        details = until(job, lambda d: any(v.status.max_back_pressured_ms_per_s > 600 for v in d.vertices))
        cause = one(by_kind(findings(details, Thresholds())), "bottleneck")
        job.cancel()
    assert cause.vertices[0] == details.vertices[-1].status.vertex_id
    assert "see whether the system behind its sink is slow" in str(cause.remedy)


def test_a_chain_without_exchanges_that_works_all_the_time_is_the_bottleneck(tmp_path: Path) -> None:
    batches = [[order(i, i)] for i in range(1000)]
    at_once = replace(AT_ONCE, saturated_ms_per_s=800.0)
    with start_embedded(with_slow_sinks(job_graph(tmp_path, COPY, {"orders": {"p0": batches}}), 0.05)) as job:
        details = until(job, lambda d: d.vertices[0].status.busy_ms_per_s > 850 and records_in(d, "s") > 1)
        cause = one(by_kind(findings(details, at_once)), "bottleneck")
        assert "bottleneck" not in by_kind(findings(details, Thresholds())), "it may just have begun"
        job.cancel()
    assert cause.severity is Severity.INFORMS, "rows come out, as fast as they can"
    assert cause.vertices == (details.vertices[0].status.vertex_id,)
    found = found_in(job_graph(tmp_path, COPY, {"orders": {"p0": batches[:3]}}), {"s": 3}, at_once)
    assert "bottleneck" not in found, "it waits for rows"


WAITING = """
import time
from pathlib import Path


def waiting(amount: int | None) -> int | None:
    while not Path(__file__).with_name("go").exists():
        time.sleep(0.01)
    return amount
"""


def test_a_function_that_has_given_nothing_yet_is_named_as_what_takes_the_time(tmp_path: Path) -> None:
    (tmp_path / "own_waiting.py").write_text(WAITING)
    text = COPY.replace("amount FROM", "waiting(amount) FROM")
    text = "CREATE FUNCTION waiting AS 'own_waiting.waiting' LANGUAGE PYTHON;" + text
    graph = job_graph(tmp_path, text, {"orders": {"p0": [[order(1, 1), order(2, 2)]]}})
    with running(graph) as job:
        details = until(job, lambda d: d.vertices[0].status.busy_ms_per_s > 950 and records_in(d, "orders") == 2)
        cause = one(by_kind(findings(details, AT_ONCE)), "bottleneck")
        (tmp_path / "go").touch()
        until(job, lambda d: records_in(d, "s") == 2 and d.vertices[0].status.busy_ms_per_s < 800)
        assert "bottleneck" not in by_kind(findings(job.details(), AT_ONCE))
    assert cause.severity is Severity.SLOWS
    assert "'s.select' has taken 2 rows and given none yet" in cause.text
