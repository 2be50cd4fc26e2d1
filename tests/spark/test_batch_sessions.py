"""Statements in batch mode, in `flowrun sql` and `flowrun.sql`: they run on the Spark of the test run."""

from __future__ import annotations

import io
import json
import sys

import pyarrow as pa
import pytest

import flowrun
from flowrun.cli.main import main
from flowrun.errors import PipelineError
from flowrun.graph.job_graph_generator import build_job_graph
from flowrun.graph.stream_graph import GraphSettings, StreamGraph
from flowrun.runners.embedded import start_embedded

BATCH = "SET 'execution.runtime-mode' = 'batch';"
SORTED = "SELECT id, amount FROM orders ORDER BY amount DESC"
"""Only a batch sorts by any column."""


@pytest.mark.usefixtures("spark")
def test_a_shell_gives_the_rows_of_a_batch_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = "CREATE VIEW orders AS SELECT * FROM (VALUES (1, 5), (2, 7), (3, 6)) AS o(id, amount);"
    text = f"{BATCH}{orders}{SORTED}; RESET 'execution.runtime-mode'; SELECT COUNT(*) AS n FROM orders WHERE id < 3;"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    monkeypatch.setattr(sys, "argv", ["flowrun", "sql", "--format", "json"])
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    assert end.value.code == 0, err
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["id"] for row in rows[:3]] == [2, 3, 1]
    assert rows[-1]["after"]["n"] == 2


@pytest.mark.usefixtures("spark")
def test_tables_of_python_are_read_by_a_batch() -> None:
    orders = pa.table({"id": [1, 2, 3], "amount": [5, 7, 6]})
    found = flowrun.sql(f"{BATCH}{SORTED}", orders=orders)
    assert found is not None
    assert found.rows() == [(2, 7), (3, 6), (1, 5)]


@pytest.mark.everyday
def test_a_batch_takes_no_time_limit() -> None:
    with pytest.raises(PipelineError, match="`within` ends a stream"):
        flowrun.sql(f"{BATCH} SELECT 1", within="10s")


@pytest.mark.everyday
def test_a_job_that_has_nothing_to_run_is_refused() -> None:
    empty = build_job_graph(StreamGraph("empty", (), (), GraphSettings()))
    with pytest.raises(PipelineError, match="job 'empty' has nothing to run"):
        start_embedded(empty)
