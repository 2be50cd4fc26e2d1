"""Programs say what becomes of rows that cannot be processed, for the job and for each operator."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from flowrun.api.aggregate import Accumulator, AggregateKernel, BoundAggregate
from flowrun.api.broadcast_function import KeyedBroadcastProcessFunction, broadcast_state
from flowrun.api.co_process_function import KeyedCoProcessFunction
from flowrun.api.process_function import KeyedProcessFunction, RichFunction, value_state
from flowrun.connectors import memory
from flowrun.connectors.memory import MemorySink, MemorySource
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import NullKeys
from flowrun.core.types import BIGINT, STRING, DataType, timestamp
from flowrun.datastream import ColumnValue, OnError, StreamExecutionEnvironment
from flowrun.errors import JobFailedError, PipelineError
from flowrun.graph.job_graph import JobSettings
from flowrun.operators.timed.assigners import TumblingSlices
from flowrun.operators.watermark_strategy import WatermarkStrategy
from flowrun.plan.nodes import TableReference
from flowrun.plan.tables import create_sink, create_source
from flowrun.runners.embedded import run_embedded
from flowrun.runtime.job_status import JobResult
from tests.end_to_end.running import json_rows, written_files

ROWS = Schema.of(n=BIGINT, k=STRING, ts=timestamp(3))
LAYOUTS = [(1, 131_072), (2, 3), (1, 1)]


def inverse(batch: pa.RecordBatch) -> pa.RecordBatch:
    if 0 in batch.column("n").to_pylist():
        raise ValueError("zero has no inverse")
    return batch


def small(batch: pa.RecordBatch) -> Any:
    if 13 in batch.column("n").to_pylist():
        raise ValueError("thirteen")
    return pc.less(batch.column("n"), 100)


class Running(KeyedProcessFunction):
    total = value_state("BIGINT")

    def process_element(self, row: dict[str, Any], context: Any) -> dict[str, Any]:
        if row["n"] == 7:
            raise KeyError("seven")
        self.total.update((self.total.value() or 0) + row["n"])
        return {"n": row["n"], "k": row["k"], "ts": row["ts"]}


def run(folder: Path, parallelism: int, batch_rows: int, mode: OnError | str, **operators: str) -> JobResult:
    numbers = [1, 0, 2, 13, 7, 3, None, 0, 4]
    times = [None if n == 3 else pa.scalar(1_000, pa.timestamp("ms")).as_py() for n in numbers]
    rows = pa.RecordBatch.from_pydict({"n": numbers, "k": ["a"] * len(numbers), "ts": times}, ROWS.arrow)
    memory.put("numbers", [rows])
    env = StreamExecutionEnvironment(
        "program",
        parallelism=parallelism,
        job=JobSettings(batch_rows=batch_rows),
        on_error=mode,
        dead_letters=str(folder / "dead"),
    )
    told = dict.fromkeys(("source", "map", "filter", "process", "sink"), None) | operators
    strategy = WatermarkStrategy.bounded(0, ColumnValue("ts"))
    streams: dict[str, Any] = {}
    streams["source"] = env.from_source(MemorySource("numbers", ROWS), name="numbers", watermarks=strategy)
    streams["map"] = streams["source"].map_batches(inverse, ROWS, name="inverse")
    streams["filter"] = streams["map"].filter_batches(small, name="small")
    streams["process"] = streams["filter"].key_by("k").process(Running, ROWS, name="running")
    strict = Schema((Field("n", BIGINT, nullable=False), *ROWS.fields[1:]))
    streams["sink"] = streams["process"].sink_to(_Strict("out", strict), name="out")
    for name, own in told.items():
        if own is not None:
            streams[name].on_error(own)
    env.execution_plan()  # to look at it first changes nothing
    return env.execute(run_embedded)


class _Strict(MemorySink):
    """A sink whose columns look as those of the stream, but for NOT NULL."""


def taken() -> list[int]:
    return sorted(n for batch in memory.take("out") for n in batch.columns.column("n").to_pylist())


FAULTS = {
    ("source 'numbers'", "event time"): 1,
    ("step 'inverse'", "function"): 2,
    ("step 'small'", "expression"): 1,
    ("step 'running'", "function"): 1,
}


@pytest.mark.parametrize(("parallelism", "batch_rows"), LAYOUTS)
def test_all_operators_put_rows_aside_that_they_cannot_process(
    tmp_path: Path, parallelism: int, batch_rows: int
) -> None:
    run(tmp_path, parallelism, batch_rows, "dead-letter")
    assert taken() == [1, 2, 4]
    assert Counter((r["place"], r["kind"]) for r in json_rows(tmp_path / "dead")) == FAULTS


def test_an_operator_says_otherwise_than_the_job(tmp_path: Path) -> None:
    result = run(tmp_path, 1, 131_072, OnError.SKIP, map="dead-letter")
    assert taken() == [1, 2, 4]
    assert {r["place"] for r in json_rows(tmp_path / "dead")} == {"step 'inverse'"}
    assert result.accumulators["running"]["numRecordsSkipped"] == 1
    with pytest.raises(JobFailedError, match="thirteen"):
        run(tmp_path, 1, 131_072, OnError.SKIP, filter="fail")
    memory.take("out")


def test_the_default_is_to_fail(tmp_path: Path) -> None:
    with pytest.raises(JobFailedError):
        run(tmp_path, 1, 131_072, "fail")
    memory.take("out")


def test_what_a_sink_cannot_write_is_kept_aside(tmp_path: Path) -> None:
    memory.put(
        "lines", [pa.RecordBatch.from_pydict({"s": ["good", "two\nlines", None]}, pa.schema([("s", pa.string())]))]
    )
    env = StreamExecutionEnvironment("program", dead_letters=str(tmp_path / "dead"))
    source = env.from_source(MemorySource("lines", Schema.of(s=STRING)), name="lines")
    table = TableReference("out", "filesystem", {"path": str(tmp_path / "out")}, format="raw")
    sink = create_sink(table, Schema.of(s=STRING), unbounded=False)
    source.sink_to(sink, name="out").on_error("dead-letter")
    env.execute(run_embedded)
    assert sorted(f.read_text() for f in written_files(tmp_path / "out")) == ["good\n\n"]
    assert [(r["place"], r["kind"]) for r in json_rows(tmp_path / "dead")] == [("sink 'out'", "sink")]


def take_sum(columns: list[pa.Array], result: DataType) -> pa.Array:
    return columns[0].cast(result.arrow)


@pytest.mark.parametrize("local", [True, False])
def test_keys_that_must_not_be_null(tmp_path: Path, local: bool) -> None:
    rows = pa.RecordBatch.from_pydict({"n": [1, 2, 3], "k": ["a", None, "a"], "ts": [0, 0, 0]}, ROWS.arrow)
    memory.put("numbers", [rows])
    env = StreamExecutionEnvironment(
        "program", on_error="dead-letter", dead_letters=str(tmp_path / "dead"), local_aggregation=local
    )
    total = BoundAggregate(
        "total",
        AggregateKernel("SUM", BIGINT, BIGINT, (Accumulator("sum", "sum", "sum", BIGINT),), finish=take_sum),
        argument=0,
    )
    stream = env.from_source(MemorySource("numbers", ROWS), watermarks=WatermarkStrategy.bounded(0, ColumnValue("ts")))
    windows = stream.key_by("k").window(TumblingSlices(60_000)).null_keys(NullKeys.FAIL).aggregate(total, name="totals")
    windows.sink_to(MemorySink("out", windows.schema))
    env.execution_plan()
    env.execute(run_embedded)
    assert [r["total"] for b in memory.take("out") for r in b.columns.to_pylist()] == [4]
    letters = json_rows(tmp_path / "dead")
    assert [(r["kind"], json.loads(str(r["text"]))["n"]) for r in letters] == [("key", 2)]


class Counts(KeyedProcessFunction):
    """How many rows each key has."""

    def process_element(self, row: dict[str, Any], context: Any) -> Any:
        yield {"k": row["k"], "n": row["n"]}


class Both(KeyedCoProcessFunction):
    """The rows of both streams."""

    def process_element1(self, row: dict[str, Any], context: Any) -> Any:
        yield {"k": row["k"], "n": row["n"]}

    process_element2 = process_element1


class Ruled(KeyedBroadcastProcessFunction):
    """The rows of the first stream."""

    rules = broadcast_state("BIGINT", "BIGINT")

    def process_element(self, row: dict[str, Any], context: Any) -> Any:
        yield {"k": row["k"], "n": row["n"]}

    def process_broadcast_element(self, row: dict[str, Any], context: Any) -> None:
        self.rules.put(row["n"], 1)


@pytest.mark.parametrize(
    ("policy", "mode", "keys", "letters"),
    [
        (None, "dead-letter", ["a", "b", None], 0),
        (NullKeys.DROP, "dead-letter", ["a", "b"], 0),
        ("fail", "dead-letter", ["a", "b"], 1),
        (NullKeys.FAIL, "skip", ["a", "b"], 0),
    ],
)
@pytest.mark.parametrize("function", [Counts, Both, Ruled])
def test_process_functions_say_what_becomes_of_keys_that_are_null(
    tmp_path: Path,
    function: type[RichFunction],
    policy: NullKeys | str | None,
    mode: str,
    keys: list[Any],
    letters: int,
) -> None:
    both = function is Both
    for name in ("numbers", "others"):
        memory.put(
            name, [pa.RecordBatch.from_pydict({"n": [1, 2, 3], "k": ["a", None, "b"], "ts": [0] * 3}, ROWS.arrow)]
        )
    env = StreamExecutionEnvironment("program", on_error=mode, dead_letters=str(tmp_path / "dead"))
    one, two = (env.from_source(MemorySource(name, ROWS), name=name) for name in ("numbers", "others"))
    out = Schema.of(k=STRING, n=BIGINT)
    if function is Counts:
        stream = one.key_by("k").process(function, out, name="f")
    elif both:
        stream = one.connect(two).key_by("k", "k").process(function, out, name="f")
    else:
        stream = one.key_by("k").connect(two.broadcast("rules")).process(function, out, name="f")
    if policy is not None:
        stream.null_keys(policy)
    stream.sink_to(MemorySink("out", out))
    env.execution_plan()  # asking twice changes nothing
    env.execute(run_embedded)
    found = Counter(r["k"] for b in memory.take("out") for r in b.columns.to_pylist())
    assert found == Counter(keys * (1 + both))
    told = json_rows(tmp_path / "dead") if (tmp_path / "dead").exists() else []
    assert [(r["place"], r["kind"], json.loads(str(r["text"]))["n"]) for r in told] == [
        ("step 'f'", "key", 2)
    ] * letters * (1 + both)


def test_records_of_a_source_go_where_its_options_say(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"n": 1}\nbroken\n')
    options = {
        "path": str(tmp_path / "in"),
        "format.on-error": "dead-letter",
        "format.dead-letter.path": str(tmp_path / "dead"),
    }
    table = TableReference("rows", "filesystem", options, format="json")
    schema = Schema.of(n=BIGINT)
    env = StreamExecutionEnvironment("program")
    env.from_source(create_source(table, schema), name="rows").sink_to(MemorySink("out", schema))
    env.execute(run_embedded)
    assert taken() == [1]
    assert [(r["place"], r["kind"], r["text"]) for r in json_rows(tmp_path / "dead")] == [
        ("source 'rows'", "decoding", "broken")
    ]


def test_mistakes_are_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="on_error is fail, skip or dead-letter, not 'ignore'"):
        StreamExecutionEnvironment("program", on_error="ignore")
    memory.put("numbers", [])
    env = StreamExecutionEnvironment("program", on_error="dead-letter")
    stream = env.from_source(MemorySource("numbers", ROWS))
    with pytest.raises(PipelineError, match="'window' cannot leave out rows that it fails on"):
        stream.key_by("k").window(TumblingSlices(60_000)).aggregate().on_error("skip")
    with pytest.raises(PipelineError, match="'map' is no process function with keys"):
        stream.map_batches(inverse, ROWS).null_keys("drop")
    with pytest.raises(PipelineError, match="null_keys is fail, group, drop, not 'ignore'"):
        stream.key_by("k").process(Counts, Schema.of(k=STRING, n=BIGINT)).null_keys("ignore")
    with pytest.raises(PipelineError, match="cannot be set on 'key by'"):
        stream.key_by("k").on_error("skip")
    stream.map_batches(inverse, ROWS).sink_to(MemorySink("out", ROWS))
    with pytest.raises(PipelineError, match="there is no folder for them"):
        env.job_graph()
