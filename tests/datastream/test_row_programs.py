"""Programs of row functions: what a newcomer writes first."""

from __future__ import annotations

import operator
import random
import threading
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from flowrun.api.process_function import KeyedProcessFunction
from flowrun.connectors.memory import MemorySource, clear, put
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.datastream import DataStream, StreamExecutionEnvironment, WatermarkGenerator
from flowrun.errors import JobFailedError, PipelineError
from flowrun.graph.job_graph import JobSettings
from flowrun.operators.timed.assigners import TumblingSlices
from flowrun.operators.watermark_strategy import WatermarkStrategy
from flowrun.runtime.lifecycle import JobState
from tests.slices import everyday

Row = dict[str, Any]
SIZES = (1, 7, 131_072)


def environment(batch_rows: int = 131_072, parallelism: int = 1) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment("rows", parallelism=parallelism, job=JobSettings(batch_rows=batch_rows))


def random_rows(seed: int, count: int = 300) -> list[Row]:
    chance = random.Random(seed)
    return [
        {
            "key": chance.choice(["a", "b", "c", None]),
            "text": chance.choice(["x", "", "zz", "y", None]),
            "whole": chance.choice([None, *range(-5, 6)]),
            "real": chance.choice([None, 0.1, 1e16, -1e16, 3.3, -0.7]),
            "exact": chance.choice([None, Decimal("0.10"), Decimal("-2.35")]),
        }
        for _ in range(count)
    ]


COLUMNS = "key STRING, text STRING, whole INT, real DOUBLE, `exact` DECIMAL(10, 2)"


def by_key(rows: list[Row]) -> dict[Any, list[Row]]:
    groups = defaultdict(list)
    for row in rows:
        groups[row["key"]].append(row)
    return groups


def rolled(rows: list[Row], column: str, combine: Callable[[Any, Any], Any]) -> dict[Any, list[Row]]:
    """What the first row of a key becomes when one of its values is combined with that of each further row."""
    results: dict[Any, list[Row]] = {}
    for key, group in by_key(rows).items():
        reduced, made = dict(group[0]), []
        for position, row in enumerate(group):
            if position:
                old, new = reduced[column], row[column]
                reduced[column] = new if old is None else old if new is None else combine(old, new)
            made.append(dict(reduced))
        results[key] = made
    return results


def running(operation: str, column: str, rows: list[Row], batch_rows: int, parallelism: int) -> dict[Any, list[Row]]:
    env = environment(batch_rows, parallelism)
    keyed = env.from_collection(rows, COLUMNS).key_by("key")
    return by_key(getattr(keyed, operation)(column).execute_and_collect())


ROLLING = [
    ("sum", operator.add, ("whole", "real", "exact")),
    ("min", min, ("text", "whole", "real", "exact")),
    ("max", max, ("text", "whole", "real", "exact")),
]


@pytest.mark.parametrize(
    ("operation", "combine", "columns", "batch_rows", "parallelism"),
    everyday([(*rolling, *layout) for rolling, layout in product(ROLLING, product(SIZES, [1, 2]))], 5),
)
def test_rolling_aggregates_are_those_of_one_row_at_a_time(
    operation: str, combine: Callable[[Any, Any], Any], columns: tuple[str, ...], batch_rows: int, parallelism: int
) -> None:
    for seed, column in enumerate(columns):
        rows = random_rows(seed)
        assert running(operation, column, rows, batch_rows, parallelism) == rolled(rows, column, combine)


@pytest.mark.parametrize("batch_rows", SIZES)
def test_a_sum_of_one_key_with_many_rows_adds_in_order(batch_rows: int) -> None:
    values = np.random.default_rng(1).normal(size=1000) * 10.0 ** np.random.default_rng(2).integers(0, 16, 1000)
    rows = pa.table({"key": ["a"] * 1000, "value": values})
    sums = environment(batch_rows).from_collection(rows).key_by("key").sum("value").execute_and_collect()
    assert [row["value"] for row in sums] == np.add.accumulate(values).tolist()


def test_a_sum_out_of_range_is_an_error() -> None:
    for kind, value in (("INT", 2**31 - 1), ("BIGINT", 2**63 - 1)):
        stream = environment().from_collection([{"k": 1, "v": value}, {"k": 1, "v": 1}], f"k INT, v {kind}")
        with pytest.raises(JobFailedError, match="sum of 'v': a sum is out of the range of int"):
            stream.key_by("k").sum("v").execute_and_collect()
    swings = [{"k": 1, "v": v} for v in (2**63 - 1, -(2**63) + 1, 2**63 - 1, -5)]
    sums = environment().from_collection(swings).key_by("k").sum("v").execute_and_collect()
    assert [row["v"] for row in sums] == [2**63 - 1, 0, 2**63 - 1, 2**63 - 6]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("greatest", [False, True])
def test_min_by_and_max_by_give_whole_rows(greatest: bool, last: bool) -> None:
    rows = random_rows(7)
    better = {
        (False, False): operator.lt,
        (False, True): operator.le,
        (True, False): operator.gt,
        (True, True): operator.ge,
    }[greatest, last]
    expected = {}
    for key, group in by_key(rows).items():
        best, made = group[0], []
        for row in group:
            if row["whole"] is not None and (best["whole"] is None or better(row["whole"], best["whole"])):
                best = row
            made.append(best)
        expected[key] = made
    keyed = environment(7, 2).from_collection(rows, COLUMNS).key_by("key")
    found = (keyed.max_by if greatest else keyed.min_by)("whole", last=last).execute_and_collect()
    assert by_key(found) == expected


class Mean:
    """The mean of a column, with an accumulator."""

    def create_accumulator(self) -> Row:
        return {"total": 0, "count": 0}

    def add(self, row: Row, accumulator: Row) -> Row:
        return {"total": accumulator["total"] + row["n"], "count": accumulator["count"] + 1}

    def merge(self, left: Row, right: Row) -> Row:
        return {name: left[name] + right[name] for name in left}

    def get_result(self, accumulator: Row) -> Row:
        return {"mean": accumulator["total"] / accumulator["count"]}


@pytest.mark.parametrize("batch_rows", SIZES)
def test_reduce_fold_and_aggregate_see_rows_one_by_one(batch_rows: int) -> None:
    rows = [{"k": "ab"[i % 2], "n": i} for i in range(10)]
    keyed = environment(batch_rows).from_collection(rows).key_by("k")
    reduced = keyed.reduce(lambda before, row: {"k": row["k"], "n": before["n"] * 2 + row["n"]}).execute_and_collect()
    expected: dict[str, int] = {}
    for row in rows:
        expected[row["k"]] = expected[row["k"]] * 2 + row["n"] if row["k"] in expected else row["n"]
    assert {row["k"]: row["n"] for row in reduced} == expected
    folded = keyed.fold({"text": ">"}, lambda made, row: {"text": f"{made['text']}{row['n']}"}, "text STRING")
    assert [row["text"] for row in folded.execute_and_collect()][-2:] == [">02468", ">13579"]
    means = keyed.aggregate(Mean, "ROW<total BIGINT, `count` BIGINT>", "mean DOUBLE").execute_and_collect()
    assert [row["mean"] for row in means][-2:] == [4.0, 5.0]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_the_words_of_lines_are_counted(parallelism: int) -> None:
    lines = environment(parallelism=parallelism).from_elements("to be or not", "to be")
    words = lines.flat_map(lambda row: ({"word": w, "n": 1} for w in row["value"].split()), "word STRING, n BIGINT")
    counts = words.key_by("word").sum("n").execute_and_collect()
    assert sorted((row["word"], row["n"]) for row in counts) == [
        ("be", 1), ("be", 2), ("not", 1), ("or", 1), ("to", 1), ("to", 2),
    ]  # fmt: skip


def test_functions_of_rows_and_of_batches_stand_beside_each_other() -> None:
    stream = environment(2).from_elements(*range(6))
    limit = 2
    rows = stream.filter(lambda row: row["value"] > limit).map(
        lambda row: {"square": row["value"] ** 2}, "square BIGINT"
    )
    assert [row["square"] for row in rows.execute_and_collect()] == [9, 16, 25]
    batches = stream.filter_batches(lambda batch: batch.column(0).to_numpy() > limit).map(
        lambda batch: pa.record_batch({"square": pa.array(batch.column(0).to_numpy() ** 2)}),
        "square BIGINT",
        batches=True,
    )
    assert [row["square"] for row in batches.execute_and_collect()] == [9, 16, 25]
    split = stream.split({"even": lambda row: row["value"] % 2 == 0})
    assert [row["value"] for row in split.get_side_output("even").execute_and_collect()] == [0, 2, 4]


def test_a_failing_row_is_named() -> None:
    stream = environment().from_elements(1, 0, 2)
    for failing in (
        stream.filter(lambda row: 1 / row["value"] > 0, name="shares"),
        stream.map(lambda row: {"value": 1 // row["value"]}, name="shares"),
    ):
        with pytest.raises(JobFailedError, match=r"shares.*ZeroDivisionError.*test_row_programs.py:\d+.*value: 0"):
            failing.execute_and_collect()
    kept = stream.filter(lambda row: 1 / row["value"] > 0).on_error("skip").execute_and_collect()
    assert [row["value"] for row in kept] == [1, 2]


# ---- sources


class Numbers:
    """Sends numbers; a restart goes on behind the last one that counted."""

    def __init__(self) -> None:
        self.stopped = threading.Event()

    def run(self, context: Any) -> None:
        start = context.restored_position.get("next", 0)
        for n in range(start, 20_000):
            context.collect_row({"n": n, "text": str(n)}, 10 * n, position={"next": n + 1})
            if n % 1000 == 999:
                context.emit_watermark(10 * n)

    def cancel(self) -> None:
        self.stopped.set()


@pytest.mark.parametrize("batch_rows", [7, 131_072])
def test_a_source_function_sends_rows_with_event_time_and_watermarks(batch_rows: int) -> None:
    env = environment(batch_rows)
    stream = env.add_source(Numbers, "n BIGINT, text STRING", bounded=True)
    sizes = stream.key_by("text").process(SeenAt, "n BIGINT, time BIGINT, watermark BIGINT").execute_and_collect()
    assert [row["n"] for row in sizes] == list(range(20_000))
    assert all(row["time"] == 10 * row["n"] for row in sizes)
    passed = [(row["n"] // 1000) * 10_000 - 10 for row in sizes if row["n"] >= 1000]
    assert [row["watermark"] for row in sizes if row["n"] >= 1000] == passed


class SeenAt(KeyedProcessFunction):
    """Each number with its event time and the watermark that it met."""

    def process_element(self, row: Row, context: Any) -> Row:
        return {"n": row["n"], "time": context.timestamp, "watermark": context.current_watermark}


def test_a_plain_function_is_a_source_that_a_cancel_ends() -> None:
    def endless(context: Any) -> None:
        while True:
            context.collect(pa.record_batch({"n": pa.array([1, 2])}))

    env = environment()
    env.add_source(endless, "n BIGINT").to_connector("blackhole")
    job = env.execute_async()
    while not sum(v.records_out for v in job.status().vertices):
        assert job.wait(10) is None
    job.cancel()
    result = job.wait()
    assert result is not None
    assert result.state is JobState.CANCELED


@pytest.mark.parametrize(
    ("send", "problem"),
    [
        (lambda context: context.collect_row({"m": 1}), r"source 'numbers' returned rows without the column 'n'"),
        (lambda context: context.collect_row({"n": "one"}), r"source 'numbers': column 'n' is BIGINT, got 'one'"),
        (lambda context: 1 / 0, r"source 'numbers': run\(\) raised ZeroDivisionError.*test_row_programs.py:\d+"),
    ],
)
def test_what_a_source_function_does_wrong(send: Callable[[Any], None], problem: str) -> None:
    stream = environment().add_source(send, "n BIGINT", bounded=True, name="numbers")
    with pytest.raises(JobFailedError, match=problem):
        stream.execute_and_collect()


def test_collections() -> None:
    env = environment()
    table = pa.table({"at": pa.array([datetime(2026, 1, 1)], pa.timestamp("ms")), "n": [1]})
    for rows in (table, table.to_batches()[0], table.to_pylist()):
        found = env.from_collection(rows, "n BIGINT, `at` TIMESTAMP(3)").execute_and_collect()
        assert found == [{"n": 1, "at": datetime(2026, 1, 1)}]
    assert env.from_collection([], "n INT").execute_and_collect() == []
    for rows, schema, problem in (
        ([], None, "does not say what its columns are"),
        ([1, {"n": 1}], None, "some rows are mappings"),
        ([1, "a"], None, "one type a column"),
        (["a"], "n INT", r"fit the columns \(n INT\)"),
        ([1], "n INTT", "no list of columns"),
        (table, "m INT", "do not have the columns"),
    ):
        with pytest.raises(PipelineError, match=problem):
            env.from_collection(rows, schema)


# ---- event time


class Heartbeats(WatermarkGenerator):
    """Watermarks by marked rows, and 50 ms behind the greatest time in any case."""

    def __init__(self) -> None:
        self.greatest = 0

    def on_event(self, row: Row, timestamp: int) -> int | None:
        self.greatest = max(self.greatest, timestamp)
        return timestamp if row["mark"] else None

    def on_periodic_emit(self) -> int | None:
        return self.greatest - 50


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("batch_rows", SIZES)
def test_a_generator_of_the_user_makes_watermarks_row_by_row(batch_rows: int, parallelism: int) -> None:
    chance = random.Random(3)
    rows = [{"n": n, "time": 10 * n + chance.randrange(60), "mark": chance.random() < 0.1} for n in range(400)]
    expected, watermark, greatest = [], -(2**63), 0
    for row in rows:
        expected.append(watermark)
        greatest = max(greatest, row["time"])
        watermark = max(watermark, greatest - 50, row["time"] if row["mark"] else watermark)
    stream = environment(batch_rows, parallelism).from_collection(rows)
    timed = stream.assign_timestamps_and_watermarks(Heartbeats, "time").set_parallelism(1)
    seen = timed.key_by("n").process(SeenAt, "n BIGINT, time BIGINT, watermark BIGINT").execute_and_collect()
    by_number = {row["n"]: row for row in seen}
    assert [by_number[n]["time"] for n in range(400)] == [row["time"] for row in rows]
    assert [max(by_number[n]["watermark"], -(2**62)) for n in range(400)] == [max(w, -(2**62)) for w in expected]


def test_event_time_from_a_function_of_the_row() -> None:
    rows = [{"at": f"2026-01-01T00:00:0{s}", "n": 1} for s in (0, 1, 5, 2)]
    stream = (
        environment()
        .from_collection(rows)
        .assign_timestamps_and_watermarks(
            WatermarkStrategy.bounded(5_000), lambda row: datetime.fromisoformat(row["at"])
        )
    )
    sizes = stream.key_by("n").window(TumblingSlices(4_000)).aggregate()
    assert [row["window_start"].second for row in sizes.execute_and_collect()] == [0, 4]


def test_problems_of_event_time() -> None:
    stream = environment().from_elements(1)
    with pytest.raises(PipelineError, match=r"there is no column 'tims'"):
        stream.assign_timestamps_and_watermarks(WatermarkStrategy.bounded(0), "tims")
    with pytest.raises(PipelineError, match="needs the event time of the rows"):
        stream.assign_timestamps_and_watermarks(Heartbeats)


# ---- sinks


class Collecting:
    """Keeps rows in a list of the module, to be seen by the test."""

    kept: list[Any] = []  # noqa: RUF012 - shared on purpose

    def open(self) -> None:
        self.kept.append("open")

    def invoke(self, row: Row) -> None:
        self.kept.append(row["value"])

    def close(self) -> None:
        self.kept.append("close")


class CollectingBatches(Collecting):
    """The same with batches."""

    def invoke_batch(self, batch: pa.RecordBatch) -> None:
        self.kept.extend(batch.column(0).to_pylist())


@pytest.mark.parametrize("function", [Collecting, CollectingBatches])
def test_a_function_as_a_sink(function: type[Collecting]) -> None:
    Collecting.kept.clear()
    env = environment()
    env.from_elements(3, 1, 2).add_sink(function)
    env.execute()
    assert Collecting.kept == ["open", 3, 1, 2, "close"]


def test_a_sink_that_fails_names_the_row() -> None:
    env = environment()
    env.from_elements(3, 0).add_sink(lambda row: 1 // row["value"], name="shares")
    with pytest.raises(JobFailedError, match=r"sink 'shares': the function raised ZeroDivisionError.*value: 0"):
        env.execute()


def test_connectors_by_name(tmp_path: Any) -> None:
    env = environment()
    env.from_elements(*range(5)).to_connector("filesystem", {"path": str(tmp_path / "out")}, format="json")
    env.execute()
    back = env.from_connector("filesystem", "value BIGINT", {"path": str(tmp_path / "out")}, format="json")
    assert sorted(row["value"] for row in back.execute_and_collect()) == list(range(5))
    with pytest.raises(PipelineError, match=r"source 'source': there is no connector 'kafkaa'|no connector"):
        env.from_connector("kafkaa", "n INT")
    with pytest.raises(PipelineError, match="has no option 'pat'"):
        env.from_connector("filesystem", "n INT", {"pat": "x"}, format="json")


def test_print(capsys: pytest.CaptureFixture[str]) -> None:
    env = environment()
    env.from_elements("a", "b").print("seen")
    env.execute()
    assert capsys.readouterr().out == "seen> +I[a]\nseen> +I[b]\n"


def test_a_program_runs_several_jobs() -> None:
    put("numbers", [pa.record_batch({"n": [1, 2], "text": ["a", "b"]})])
    env = environment()
    stream: DataStream = env.from_source(MemorySource("numbers", Schema.of(n=BIGINT, text=STRING)))
    assert len(stream.execute_and_collect()) == 2
    assert len(stream.filter(lambda row: row["n"] > 1).execute_and_collect()) == 1
    clear()


def test_what_is_no_function_and_no_time_is_refused() -> None:
    stream = environment().from_collection([{"k": "a", "v": 1}])
    for build in (
        lambda: stream.map(3),  # type: ignore[arg-type]
        lambda: stream.add_sink(3),  # type: ignore[arg-type]
        lambda: stream.key_by("k").reduce(3),  # type: ignore[arg-type]
        lambda: stream.environment.add_source(3, "n INT"),  # type: ignore[arg-type]
    ):
        with pytest.raises(PipelineError, match="3 is not a function"):
            build()
    for build, problem in (
        (lambda: stream.key_by("k").sum("w"), "there is no column 'w'"),
        (lambda: stream.key_by("k").sum("k"), "'k' is a column of the key"),
        (lambda: stream.key_by("v").sum("k"), "'k' is STRING, which has no sum"),
        (lambda: stream.key_by(lambda row: row["k"]), "columns are named"),  # type: ignore[arg-type]
    ):
        with pytest.raises(PipelineError, match=problem):
            build()
    for value, problem in (("noon", "gave 'noon', which is no time"), (None, "must not be NULL")):
        timed = stream.assign_timestamps_and_watermarks(WatermarkStrategy.bounded(0), lambda row, value=value: value)  # type: ignore[misc]
        with pytest.raises(JobFailedError, match=problem):
            timed.execute_and_collect()
    with pytest.raises(JobFailedError, match="came without event time"):
        stream.key_by("k").window(TumblingSlices(10)).aggregate().execute_and_collect()
