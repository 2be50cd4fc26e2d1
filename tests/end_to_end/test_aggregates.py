"""Aggregates whose treatment of NULL is their own."""

import json
from pathlib import Path

import pytest

from tests.end_to_end.running import json_rows, run_text

PIPELINE = """
name: nulls
sources:
  rows:
    connector: filesystem
    path: ${DATA}
    format: json
    schema: {k: STRING, x: BIGINT, ok: BOOLEAN, ts: TIMESTAMP(3)}
    watermark: {column: ts, delay: 1s}
steps:
  out_rows:
    from: rows
    key_by: [k]
    window: {type: tumbling, size: 1m}
    aggregate:
      - ARRAY_AGG(x) AS xs
      - ARRAY_AGG(x) FILTER (WHERE ok) AS good
      - ARRAY_AGG(DISTINCT x) AS different
      - COUNT(DISTINCT x) AS n
sinks:
  out: {from: out_rows, connector: filesystem, path: "${OUT}", format: json}
"""


@pytest.mark.parametrize("batch_rows", [1, 3, 100])
def test_array_agg_keeps_nulls_but_not_the_rows_that_its_filter_rejects(tmp_path: Path, batch_rows: int) -> None:
    rows = [("a", None, True), ("a", 1, False), ("a", None, False), ("a", 2, True), ("a", 2, None), ("b", None, None)]
    data = tmp_path / "data.json"
    data.write_text(
        "".join(
            json.dumps({"k": k, "x": x, "ok": ok, "ts": f"2024-03-01 10:00:00.00{i}"}) + "\n"
            for i, (k, x, ok) in enumerate(rows)
        )
    )
    run_text(tmp_path, PIPELINE, {"DATA": data, "OUT": tmp_path / "out"}, batch_rows=batch_rows)
    found = {r["k"]: (r["xs"], r["good"], r["different"], r["n"]) for r in json_rows(tmp_path / "out")}
    assert found == {
        "a": ([None, 1, None, 2, 2], [None, 2], [None, 1, 2], 2),
        "b": ([None], None, [None], 0),
    }


@pytest.mark.parametrize(
    ("window", "found"), [("{type: count, size: 2}", 2), ("{type: global, trigger: {count: 5}}", 1)]
)
def test_windows_without_bounds_keys_and_aggregates_are_counted(tmp_path: Path, window: str, found: int) -> None:
    (tmp_path / "data.json").write_text('{"x": 1}\n' * 5)
    text = """
    name: ones
    sources: {rows: {connector: filesystem, path: "${DATA}", format: json, schema: {x: BIGINT}}}
    steps: {ones: {from: rows, window: WINDOW, aggregate: [1 AS one]}}
    sinks: {out: {from: ones, connector: filesystem, path: "${OUT}", format: json}}
    """.replace("WINDOW", window)
    run_text(tmp_path, text, {"DATA": tmp_path / "data.json", "OUT": tmp_path / "out"})
    assert json_rows(tmp_path / "out") == [{"one": 1}] * found
