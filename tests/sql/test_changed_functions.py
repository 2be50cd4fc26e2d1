"""Functions that change between two lives of a job: what `plan` says of their state, and that it goes on."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from flowrun.cli.restoring import locate_state
from flowrun.runners.compile import compile_pipeline
from flowrun.runtime.checkpoint.compatibility import compare
from tests.cli.test_plan import take
from tests.sql.recovery_gates import FUNCTIONS
from tests.sql.recovery_runs import Job
from tests.sql.test_cases import HERE, folded, plain

BEGINNING = """
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple
import flowrun
from flowrun.api.process_function import KeyedProcessFunction, ValueState, value_state

class Row(NamedTuple):
    seen: int
"""
MEAN = """
@dataclass
class Total:
    sum: float = 0.0
    rows: int = 0
class Mean:
    def create_accumulator(self) -> Total: return Total()
    def accumulate(self, total: Total, value: int) -> None: total.sum += value; total.rows += 1
    def get_value(self, total: Total) -> float: return total.sum / total.rows
"""
MEAN_OF_CENTS = """
@dataclass
class Cents:
    cents: int
    rows: int
class Mean:
    version = 2
    def create_accumulator(self) -> Cents: return Cents(0, 0)
    def migrate(self, old: dict, version: int) -> Cents: return Cents(round(old["sum"] * 100), old["rows"])
    def accumulate(self, total: Cents, value: int) -> None: total.cents += value * 100; total.rows += 1
    def get_value(self, total: Cents) -> float: return total.cents / 100 / total.rows
"""
COUNT = """
@flowrun.ptf
class Count(KeyedProcessFunction):
    seen: ValueState[int] = value_state()
    def process_element(self, row, context) -> Iterator[Row]:
        self.seen.update((self.seen.value() or 0) + 1)
        yield Row(self.seen.value())
"""
COUNT_AS_TEXT = """
@flowrun.ptf
class Count(KeyedProcessFunction):
    seen: ValueState[str] = value_state(migrate=str)
    def process_element(self, row, context) -> Iterator[Row]:
        self.seen.update(str(int(self.seen.value() or 0) + 1))
        yield Row(int(self.seen.value()))
"""
SCRIPT = """
CREATE TABLE a_rows (order_id BIGINT, user_id STRING)
WITH ({source});
CREATE TABLE means (who STRING, mean DOUBLE, most BIGINT) WITH ('connector' = 'filesystem', 'path' = '{out}', 'format' = 'debezium-json');
CREATE FUNCTION mean AS '{module}.Mean' LANGUAGE PYTHON;
CREATE FUNCTION counted AS '{module}.Count' LANGUAGE PYTHON;
CREATE VIEW orders AS SELECT * FROM a_rows WHERE gate_a(order_id) AND user_id IS NOT NULL;
INSERT INTO means
SELECT user_id, mean(order_id), CAST(0 AS BIGINT) FROM orders GROUP BY user_id
UNION ALL
SELECT user_id, CAST(0 AS DOUBLE), seen FROM counted(TABLE orders PARTITION BY user_id, uid => 'counted');
"""


FILES = f"'connector' = 'filesystem', 'path' = '{HERE}/data/orders.json', 'format' = 'json'"
GENERATED = "'connector' = 'datagen', 'number-of-rows' = '1000'"


def write(folder: Path, module: str, mean: str, count: str, source: str = FILES) -> Path:
    """The script, with a module of its own: one process knows one of a name."""
    (folder / f"{module}.py").write_text(BEGINNING + mean + count)
    script = folder / "changed.sql"
    script.write_text(FUNCTIONS + SCRIPT.format(source=source, out=folder / "out", module=module))
    return script


def said(folder: Path, name: str, before: str, after: str, *, of_count: bool = False) -> tuple[int, str]:
    """(how many problems, all that is said) of a savepoint of one version of a function and the other version."""
    versions = [(MEAN, given) if of_count else (given, COUNT) for given in (before, after)]
    kept = take(folder / "kept", compile_pipeline(write(folder, f"{name}_1", *versions[0], GENERATED)))
    compiled = compile_pipeline(write(folder, f"{name}_2", *versions[1], GENERATED))
    found = compare(locate_state(str(kept), None).metadata, compiled.job_graph)
    return len(found.all_problems), "\n".join(found.lines(False))


@pytest.mark.parametrize(
    ("old", "new", "problems", "message"),
    [
        ("total.rows += 1", "total.rows += 2", 0, "kept"),
        ("rows: int = 0", "rows: int = 0\n    most: int = 0", 0, "field 'most' of Total is added, with its default"),
        ("rows: int = 0", "rows: int = 0\n    last: 'int | None' = None", 0, "field 'last' of Total is added"),
        ("sum: float = 0.0", "sum: int = 0", 1, "field 'sum' of Total was float, is int now"),
        ("sum: float = 0.0", "total: float = 0.0", 1, "field 'sum' of Total was removed"),
        ("def create_accumulator(self) -> Total", "def create_accumulator(self)", 0, "is not known"),
    ],
)
def test_plan_says_what_becomes_of_accumulators(
    tmp_path: Path, old: str, new: str, problems: int, message: str
) -> None:
    assert old in MEAN
    found, text = said(tmp_path, "accumulating", MEAN, MEAN.replace(old, new))
    assert (found, message in text) == (problems, True), text
    if problems:
        assert "set version = 2 in the class and write def migrate(self, old, version)" in text


def test_plan_says_that_an_aggregate_migrates(tmp_path: Path) -> None:
    found, text = said(tmp_path, "migrating", MEAN, MEAN_OF_CENTS)
    assert not found
    assert "accumulators go from version 1 to 2, by migrate()" in text
    without = MEAN_OF_CENTS.replace("def migrate", "def other")
    found, text = said(tmp_path, "unmigrated", MEAN, without)
    assert (found, "the aggregate has no method migrate" in text) == (1, True)


@pytest.mark.parametrize(
    ("after", "problems", "message"),
    [
        (COUNT_AS_TEXT, 0, "column 'value' int64 becomes string, by builtins:str"),
        (COUNT_AS_TEXT.replace("migrate=str", ""), 1, "column 'value' was int64, is string now"),
        (COUNT.replace("    def process", "    last: ValueState[int] = value_state()\n    def process"), 0, "kept"),
        (COUNT.replace("seen: ValueState", "count: ValueState").replace("self.seen", "self.count"), 1, "table 'seen' is not kept any more"),
    ],
)  # fmt: skip
def test_plan_says_what_becomes_of_state(tmp_path: Path, after: str, problems: int, message: str) -> None:
    found, text = said(tmp_path, "stateful", COUNT, after, of_count=True)
    assert (found, message in text) == (problems, True), text


def test_state_goes_on_after_both_functions_have_changed(tmp_path: Path) -> None:
    script = write(tmp_path, "changing_1", MEAN, COUNT)
    job = Job(script, tmp_path, {"a": 130})
    chance = random.Random(1)
    assert job.interrupt(chance)
    write(tmp_path, "changing_2", MEAN_OF_CENTS, COUNT_AS_TEXT)
    assert job.interrupt(chance)
    job.finish(2)
    assert job.half_read()
    orders = [json.loads(line) for line in (HERE / "data" / "orders.json").read_text().splitlines()]
    groups: dict[str, list[int]] = {}
    for order in orders:
        if order["user_id"] is not None:
            groups.setdefault(order["user_id"], []).append(order["order_id"])
    wanted = [(who, sum(ids) / len(ids), 0) for who, ids in groups.items()]
    wanted += [(who, 0.0, seen + 1) for who, ids in groups.items() for seen in range(len(ids))]
    assert folded(tmp_path / "out", ["who", "mean", "most"]) == Counter(json.dumps(plain(list(row))) for row in wanted)
