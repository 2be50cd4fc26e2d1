"""Operators know where they stand in the user's text, whatever lowering makes of a step; what they are does not depend on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.graph.fingerprint import fingerprint
from flowrun.graph.job_graph import JobGraph
from flowrun.runners.compile import compile_pipeline

SCRIPT = """\
CREATE TABLE orders (k BIGINT, v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'datagen');
CREATE TABLE sums (w TIMESTAMP(3), k BIGINT, v BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO sums
  SELECT window_start, k, SUM(v)
  FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' SECOND))
  WHERE v > 3
  GROUP BY window_start, window_end, k;
"""

DOCUMENT = """\
name: sums
sources:
  orders:
    connector: datagen
    schema: {k: BIGINT, v: BIGINT, ts: TIMESTAMP(3)}
    watermark: {column: ts}
steps:
  big: {from: orders, filter: v > 3}
  sums:
    from: big
    key_by: k
    window: {type: tumbling, size: 1s}
    aggregate: SUM(v) AS v
sinks:
  out: {from: sums, connector: blackhole}
"""


def graph_of(folder: Path, name: str, text: str) -> JobGraph:
    file = folder / name
    file.write_text(text)
    return compile_pipeline(file).job_graph


@pytest.mark.parametrize(("name", "text"), [("sums.sql", SCRIPT), ("sums.yaml", DOCUMENT)])
def test_every_operator_stands_somewhere_in_the_text(tmp_path: Path, name: str, text: str) -> None:
    graph = graph_of(tmp_path, name, text)
    operators = [o for v in graph.vertices for o in v.operators]
    lines = text.splitlines()
    for operator in operators:
        assert operator.written_at is not None, operator.name
        assert Path(operator.written_at.file).name == name
    written = {o.name: o.written_at for o in operators if o.written_at is not None}
    source = written["Source: orders"]
    assert lines[source.line - 1][source.column - 1 :].startswith("orders")
    [local] = [place for name, place in written.items() if name.endswith("(local)")]
    assert ("GROUP BY" if name.endswith("sql") else "sums:") in lines[local.line - 1]


@pytest.mark.parametrize(
    ("name", "text", "comment"), [("sums.sql", SCRIPT, "-- new\n"), ("sums.yaml", DOCUMENT, "# new\n")]
)
def test_a_comment_moves_operators_and_changes_none(tmp_path: Path, name: str, text: str, comment: str) -> None:
    before, after = graph_of(tmp_path, name, text), graph_of(tmp_path, name, comment + text)
    places = [[o.written_at for v in graph.vertices for o in v.operators] for graph in (before, after)]
    assert [p.line + 1 for p in places[0] if p] == [p.line for p in places[1] if p]
    assert fingerprint(before) == fingerprint(after)
