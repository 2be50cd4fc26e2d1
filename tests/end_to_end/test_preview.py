"""`flowrun preview`: a sample of the real input, and no trace of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Command

PIPELINE = """
name: orders
settings: {checkpoint: {interval: 100ms, dir: state}}
sources:
  orders:
    connector: filesystem
    path: orders.json
    format: json
    schema: {id: BIGINT, customer: STRING, amount: DOUBLE, at: TIMESTAMP(3)}
    watermark: {time: at, delay: 1s}
  ticks: {connector: datagen, rows-per-second: 1000, schema: {n: BIGINT}, fields: {n: {kind: sequence, start: 0, end: 1000000000}}}
steps:
  dear: {from: orders, filter: amount >= 5}
  totals:
    from: dear
    key_by: [customer]
    window: {type: tumbling, size: 1h}
    aggregate: ["SUM(amount) AS total"]
sinks:
  out: {from: totals, connector: filesystem, path: out, format: json}
  numbers: {from: ticks, connector: filesystem, path: numbers, format: json}
"""
SCRIPT = """
CREATE TABLE orders (id BIGINT, customer STRING, amount DOUBLE, `at` TIMESTAMP(3))
  WITH ('connector' = 'filesystem', 'path' = 'orders.json', 'format' = 'json');
CREATE VIEW dear AS SELECT id, amount FROM orders WHERE amount >= 5;
CREATE TABLE counted (customer STRING, n BIGINT, PRIMARY KEY (customer) NOT ENFORCED)
  WITH ('connector' = 'filesystem', 'path' = 'counted', 'format' = 'debezium-json');
INSERT INTO counted SELECT customer, COUNT(*) FROM orders GROUP BY customer
-- the end
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    orders = [
        {"id": i, "customer": "ab"[i % 2], "amount": float(i), "at": f"2024-01-01 10:00:{i:02d}"} for i in range(10)
    ]
    Path("orders.json").write_text("".join(json.dumps(order) + "\n" for order in orders))
    Path("orders.yaml").write_text(PIPELINE)
    Path("orders.sql").write_text(SCRIPT)
    return tmp_path


def test_a_sink_shows_what_it_would_get_and_nothing_is_left(flowrun: Command, folder: Path) -> None:
    before = sorted(folder.iterdir())
    done = flowrun("preview", "orders.yaml", "--sink", "out")
    assert done.code == 0, done.err
    assert "21.0" in done.out, "b has 5, 7 and 9: the window is open at the end of the input, and fires"
    assert "2 rows" in done.out
    assert "10 rows of 'orders'" in done.err
    assert sorted(folder.iterdir()) == before


def test_a_source_without_end_is_cut_after_the_sample(flowrun: Command) -> None:
    done = flowrun("preview", "orders.yaml", "--sink", "numbers", "--sample", 50, "--format", "json")
    assert done.code == 0, done.err
    numbers = [json.loads(line)["n"] for line in done.out.splitlines()]
    assert numbers == list(range(len(numbers)))
    assert 50 <= len(numbers) < 1000
    assert "the input goes on" in done.err


def test_a_source_that_gives_little_is_cut_in_time(flowrun: Command) -> None:
    done = flowrun("preview", "orders.yaml", "--sink", "numbers", "--sample", 1_000_000, "--for", "300ms")
    assert done.code == 0, done.err
    assert "of 'ticks'" in done.err


@pytest.mark.parametrize("name", ["orders.yaml", "orders.sql"])
def test_a_step_shows_what_it_gives(flowrun: Command, name: str) -> None:
    done = flowrun("preview", name, "--step", "dear", "--format", "json")
    assert done.code == 0, done.err
    assert [json.loads(line)["id"] for line in done.out.splitlines()] == [5, 6, 7, 8, 9]


def test_changes_come_to_the_final_table(flowrun: Command) -> None:
    done = flowrun("preview", "orders.sql", "--rows", 1)
    assert done.code == 0, done.err
    assert "2 rows, 1 of them shown" in done.out


def test_lines_are_the_changes_as_they_come(flowrun: Command) -> None:
    done = flowrun("preview", "orders.sql", "--format", "json", "--set", "settings.batch_rows=1")
    changes = [json.loads(line) for line in done.out.splitlines()]
    assert len(changes) > 2
    assert changes[-1]["after"]["n"] == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("orders.yaml", "--sink", "outt"), "the pipeline has no sink 'outt'\n  hint: did you mean 'out'?"),
        (("orders.yaml", "--step", "dearr"), "the pipeline has no step 'dearr'\n  hint: did you mean 'dear'?"),
        (("orders.sql", "--step", "dearr"), "'dearr' cannot be looked at: table 'dearr' does not exist"),
        (("orders.yaml", "--step", "dear", "--sink", "out"), "--sink and --step do not go together"),
        (("orders.yaml", "--format", "csv"), "lines can be of one sink only: choose one by --sink (out, numbers)"),
        (("orders.yaml", "--for", "soon"), "'soon' is no duration"),
        (("none.yaml",), "none.yaml"),
    ],
)
def test_what_cannot_be_looked_at(flowrun: Command, words: tuple[str, ...], said: str) -> None:
    done = flowrun("preview", *words)
    assert done.code == 2
    assert said in done.err
    assert done.out == ""


def test_a_source_that_leaves_a_trace_is_not_looked_at(flowrun: Command) -> None:
    Path("cdc.sql").write_text(
        "CREATE TABLE t (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'postgres-cdc', 'hostname' = 'h', "
        "'database-name' = 'd', 'table-name' = 't', 'username' = 'u', 'password' = 'p', 'slot.name' = 's');\nSELECT * FROM t;"
    )
    done = flowrun("preview", "cdc.sql")
    assert done.code == 2
    assert "reading it leaves a replication slot and a publication in the database" in done.err
