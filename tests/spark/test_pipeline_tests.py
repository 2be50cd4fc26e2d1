"""`flowrun test --engine all`: tests of pipelines run on Spark, too, where they end; what differs there is a failure that shows both."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Command

PIPELINE = """
CREATE FUNCTION place AS 'places.place' LANGUAGE PYTHON;
CREATE TABLE orders (id BIGINT, buyer STRING, amount DECIMAL(10, 2), tags ARRAY<STRING>, ts TIMESTAMP(3),
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ('connector' = 'datagen');
CREATE TABLE totals (buyer STRING, n BIGINT, amount DECIMAL(38, 2), PRIMARY KEY (buyer) NOT ENFORCED) WITH ('connector' = 'blackhole');
CREATE TABLE minutes (buyer STRING, began TIMESTAMP(3), n BIGINT, place STRING) WITH ('connector' = 'blackhole');
INSERT INTO totals SELECT COALESCE(buyer, 'nobody'), COUNT(*), SUM(amount) FROM orders GROUP BY buyer;
INSERT INTO minutes SELECT buyer, window_start, COUNT(*), place(buyer)
  FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY buyer, window_start, window_end;
"""
FUNCTIONS = """
import os

def place(buyer: str) -> str:
    return "here" if os.environ.get("PLACE") == str(os.getpid()) else "away"
"""
TESTS = """
pipeline: p.sql
tests:
  - name: equal
    steps:
      - orders:
          - {id: 1, buyer: a, amount: 1.5, tags: [x], ts: 2024-03-01T10:00:00}
          - {id: 2, amount: 2, ts: 2024-03-01T10:00:30}
      - orders: [{id: 3, buyer: a, ts: 2024-03-01T10:01:00}]
      - end: all
    expect:
      totals: [{buyer: a, n: 2, amount: 1.5}, {buyer: nobody, n: 1, amount: 2}]
  - name: endless
    steps: [{orders: [{id: 1, buyer: a, ts: 2024-03-01T10:00:00}]}]
    expect: {totals: [{buyer: a, n: 1}]}
"""


def test_what_ends_runs_on_spark_too_and_what_differs_is_shown(
    flowrun: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.sql").write_text(PIPELINE)
    (tmp_path / "p.test.yaml").write_text(TESTS)
    (tmp_path / "places.py").write_text(FUNCTIONS)
    equal = flowrun("test", "p.test.yaml", "--engine", "all", "-v")
    assert equal.code == 0, equal.out + equal.err
    assert "not on Spark: source 'orders' does not end" in equal.out
    assert "2 tests passed in 1 file: 9 runs" in equal.out

    monkeypatch.setenv("PLACE", str(os.getpid()))
    different = flowrun("test", "p.test.yaml", "--engine", "all", "-k", "equal")
    assert different.code == 1, different.out + different.err
    assert (
        "sink 'minutes' has other rows at the end when the pipeline is run on Spark: - as written, + spark"
        in different.out
    )
    assert "here" in different.out
    assert "away" in different.out
