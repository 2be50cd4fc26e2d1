"""The way of one row through a job's own operators: where it ends, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.core.clock import SystemClock
from flowrun.errors import PipelineError
from flowrun.graph.job_graph import JobGraph
from flowrun.runners.why.isolated import check_fits
from flowrun.runners.why.row_story import ARRIVES, ENDS, WAITS, Story, parse_row, row_source, tell_row
from flowrun.state.storage.locate import SnapshotPath, locate
from tests.runners.why.jobs import ORDERS, PAYMENTS, job_graph, order, payment, read, running, until

pytestmark = pytest.mark.exhaustive

SINK = "CREATE TABLE s (id BIGINT, n BIGINT) WITH ('connector' = 'blackhole');\n"
COPY = ORDERS + SINK + "INSERT INTO s SELECT id, amount * 2 FROM orders WHERE amount > 5;"
WINDOWS = (
    ORDERS
    + """
CREATE TABLE totals (s TIMESTAMP(3), n BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO totals SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end;
"""
)
JOIN = (
    ORDERS + PAYMENTS + SINK + "INSERT INTO s SELECT o.id, p.paid FROM orders o JOIN payments p ON o.user_id = p.payer;"
)


COLUMNS = {"orders": ("id", "user_id", "amount", "ts"), "payments": ("pid", "payer", "paid", "pts")}


def story(graph: JobGraph, row: dict, snapshot: SnapshotPath | None = None, source: str | None = None) -> Story:
    origin, read = row_source(graph, row, source, COLUMNS)
    return tell_row(graph, read, origin, snapshot, SystemClock())


def compiled(folder: Path, text: str) -> JobGraph:
    return job_graph(folder, text, {})


def checkpoint_of(folder: Path, text: str, sources: dict, counts: dict[str, int]) -> SnapshotPath:
    """A checkpoint of a job that has got so many rows."""
    state = folder / "state"
    graph = job_graph(folder, text, sources, checkpoint__interval="10m", checkpoint__dir=str(state))
    with running(graph, state) as job:
        until(job, read(counts))
        path = job.take_snapshot(savepoint=False).wait(10_000)
    return locate(path)


def test_a_row_that_reaches_the_sink_is_shown_as_it_comes_there(tmp_path: Path) -> None:
    told = story(compiled(tmp_path, COPY), order(7, 1, amount=6))
    assert told.steps[-1].verdict == ARRIVES
    assert told.end == "It reaches sink 's' as +I[id = 7, n = 12]."
    assert any(step.place is not None and step.place.startswith("job.sql:") for step in told.steps)


def test_a_filter_that_drops_it_is_named_with_its_condition(tmp_path: Path) -> None:
    told = story(compiled(tmp_path, COPY), order(7, 1, amount=5))
    assert told.steps[-1].verdict == ENDS
    assert "(amount > 5) is not true" in told.end
    assert told.end.startswith("Filter 's.filter'")


def test_columns_that_are_not_given_are_null(tmp_path: Path) -> None:
    told = story(compiled(tmp_path, COPY), {"id": 7, "ts": "2024-03-01 00:00:01"})
    assert "is not true" in told.end
    assert told.row["amount"] is None


def test_without_the_column_of_its_event_time_a_row_is_not_followed(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="the row has no event time: column 'ts' of source 'orders' is not given"):
        story(compiled(tmp_path, COPY), {"user_id": "ann"})
    told = story(compiled(tmp_path, COPY), {**order(7, 1), "ts": None})
    assert "event time 'ts' must not be NULL" in told.end, "who gives NULL is told what the job does with it"


def test_of_many_rows_that_it_becomes_a_few_are_shown(tmp_path: Path) -> None:
    sources = {"orders": {"p0": []}, "payments": {"q0": [[payment(n, 5, "ann", n) for n in range(40)]]}}
    snapshot = checkpoint_of(tmp_path, JOIN, sources, {"payments": 40})
    told = story(check_fits(compiled(tmp_path, JOIN), snapshot), order(3, 20, "ann"), snapshot)
    assert len([step for step in told.steps if step.verdict == ARRIVES]) == 6
    assert told.end.endswith("It reaches sink 's' as 35 rows more.")


def test_a_window_in_which_it_waits(tmp_path: Path) -> None:
    told = story(compiled(tmp_path, WINDOWS), order(1, 70))
    assert told.steps[-1].verdict == WAITS
    assert (
        "in window [2024-03-01 00:01:00, 2024-03-01 00:02:00) until event time has reached 2024-03-01 00:01:59.999"
        in told.end
    )
    assert "the operators had no state" in told.unknown[0]


def test_with_the_state_of_a_checkpoint_a_row_may_be_late(tmp_path: Path) -> None:
    sources = {"orders": {"p0": [[order(1, 10), order(2, 200)]]}}
    snapshot = checkpoint_of(tmp_path, WINDOWS, sources, {"orders": 2, "totals": 1})
    graph = check_fits(compiled(tmp_path, WINDOWS), snapshot)
    late = story(graph, order(3, 20), snapshot)
    assert "It is late for 'totals.aggregate'" in late.end
    assert "its event time is 2024-03-01 00:00:20, and event time is at 2024-03-01 00:03:1" in late.end
    assert [s.operator for s in late.steps].count("totals.aggregate") == 1, (
        "what is counted before the exchange does not pass"
    )
    early = story(graph, order(3, 300), snapshot)
    assert "in window [2024-03-01 00:05:00, 2024-03-01 00:06:00)" in early.end, "not in the window that waits already"
    assert f"checkpoint {snapshot.metadata.checkpoint_id}" in early.unknown[0]


def test_with_the_state_of_a_checkpoint_the_other_side_of_a_join_is_known(tmp_path: Path) -> None:
    sources = {"orders": {"p0": [[order(1, 1)]]}, "payments": {"q0": [[payment(5, 5, "ann", 55)]]}}
    snapshot = checkpoint_of(tmp_path, JOIN, sources, {"s": 1})
    graph = check_fits(compiled(tmp_path, JOIN), snapshot)
    assert story(graph, order(3, 20, "ann"), snapshot).end == "It reaches sink 's' as +I[id = 3, n = 55]."
    alone = story(graph, order(3, 20, "zoe"), snapshot)
    assert "the right side has no row for it; it is kept, and later ones may match" in alone.end
    nobody = story(graph, order(3, 20, None), snapshot)
    assert "its key is NULL (user_id, payer)" in nobody.end or "its key is NULL" in nobody.end


def test_the_checkpoint_and_its_folder_are_as_they_were(tmp_path: Path) -> None:
    sources = {"orders": {"p0": [[order(1, 1)]]}, "payments": {"q0": [[payment(5, 5)]]}}
    snapshot = checkpoint_of(tmp_path, JOIN, sources, {"s": 1})
    folder = tmp_path / "state"
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and "lease" not in p.name}
    story(check_fits(compiled(tmp_path, JOIN), snapshot), order(3, 20), snapshot)
    assert {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and "lease" not in p.name} == before


def test_the_outside_is_not_written_to(tmp_path: Path) -> None:
    text = (
        ORDERS
        + """
    CREATE TABLE f (id BIGINT) WITH ('connector' = 'filesystem', 'path' = '${OUT}', 'format' = 'json');
    INSERT INTO f SELECT id FROM orders;
    """
    )
    told = story(compiled(tmp_path, text), order(7, 1))
    assert told.end == "It reaches sink 'f' as +I[id = 7]."
    assert not (tmp_path / "out").exists()


def test_a_row_that_makes_the_job_fail(tmp_path: Path) -> None:
    text = ORDERS + SINK + "INSERT INTO s SELECT id, 10 / amount FROM orders;"
    told = story(compiled(tmp_path, text), order(7, 1, amount=0))
    assert "The job fails with it: division by zero" in told.end


def test_a_group_counts_it_in(tmp_path: Path) -> None:
    text = (
        ORDERS
        + """
    CREATE TABLE totals (u STRING, n BIGINT) WITH ('connector' = 'blackhole');
    INSERT INTO totals SELECT user_id, COUNT(*) FROM orders GROUP BY user_id;
    """
    )
    snapshot = checkpoint_of(tmp_path, text, {"orders": {"p0": [[order(1, 1), order(2, 2)]]}}, {"totals": 1})
    told = story(check_fits(compiled(tmp_path, text), snapshot), order(3, 3), snapshot)
    assert told.end == "It reaches sink 'totals' as -U[u = ann, n = 2]. It reaches sink 'totals' as +U[u = ann, n = 3]."


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"id": 1', "--row is no JSON"),
        ("[1]", "no JSON object"),
        ("{}", "no JSON object"),
    ],
)
def test_what_is_no_row_is_wrong_input(row: str, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        parse_row(row)


def test_a_row_of_no_source_or_of_several(tmp_path: Path) -> None:
    graph = compiled(tmp_path, JOIN)
    with pytest.raises(PipelineError, match="no source has the columns 'colour'"):
        row_source(graph, {"colour": "red"}, None, {})
    with pytest.raises(PipelineError, match="there is no source 'ordrs'") as error:
        row_source(graph, {"id": 1}, "ordrs", {})
    assert "orders" in str(error.value)
    twice = compiled(
        tmp_path,
        ORDERS
        + ORDERS.replace("TABLE orders", "TABLE again")
        + SINK
        + ("INSERT INTO s SELECT id, amount FROM orders; INSERT INTO s SELECT id, amount FROM again;"),
    )
    with pytest.raises(PipelineError, match="may be of several sources: 'orders', 'again'"):
        row_source(twice, {"id": 1}, None, {})
    assert row_source(twice, {"id": 1}, "again", {})[0].name == "Source: again"
    with pytest.raises(PipelineError, match="source 'again' has no column 'colour'"):
        row_source(twice, {"id": 1, "colour": "red"}, "again", {})
    with pytest.raises(PipelineError, match="the row is none of source 'orders'"):
        story(graph, {"id": "many", "user_id": "ann"}, source="orders")
