"""SQL and pipelines from Python: tables of Python as sources, results as tables of Python."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import flowrun
from flowrun.connectors import memory
from flowrun.errors import JobFailedError, PipelineError
from flowrun.runtime.lifecycle import JobState

ORDERS = pa.table({"user": ["a", "b", "a"], "amount": [1.5, 2.0, 3.0]})
TOTALS = "SELECT `user`, SUM(amount) AS total FROM orders GROUP BY `user`"
PIPELINE = """
name: orders
sources:
  orders: {connector: filesystem, path: orders.json, format: json, schema: {id: BIGINT, amount: DOUBLE}}
steps:
  large: {from: orders, filter: amount > 1}
sinks:
  shown: {from: large, connector: print}
  kept: {from: orders, connector: filesystem, path: out, format: json}
"""


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("orders.json").write_text('{"id": 1, "amount": 0.5}\n{"id": 2, "amount": 2.5}\n')
    Path("orders.yaml").write_text(PIPELINE)
    return "orders.yaml"


@pytest.mark.parametrize(
    "given",
    [
        ORDERS,
        ORDERS.to_batches()[0],
        ORDERS.to_reader(),
        ds.dataset(ORDERS),
        ORDERS.to_pandas(),
        pl.from_arrow(ORDERS),
        ORDERS.to_pydict(),
        "duckdb",
    ],
    ids=["table", "batch", "reader", "data set", "pandas", "polars", "dictionary", "duckdb"],
)
def test_tables_of_python_are_sources(given: Any) -> None:
    if isinstance(given, str):
        orders = ORDERS
        given = duckdb.sql("SELECT * FROM orders")
        assert orders is ORDERS
    result = flowrun.sql(TOTALS, orders=given)
    assert result is not None
    assert sorted(result.rows()) == [("a", 4.5), ("b", 2.0)]


def test_results_are_tables_of_python() -> None:
    result = flowrun.sql(TOTALS, orders=ORDERS)
    assert result is not None
    assert len(result) == 2
    assert result.arrow().schema.names == ["user", "total"]
    assert result.pandas().set_index("user")["total"].to_dict() == {"a": 4.5, "b": 2.0}
    assert dict(result.polars().rows()) == {"a": 4.5, "b": 2.0}
    assert pa.table(result).num_rows == 2
    assert pl.DataFrame(result).height == 2


def test_an_empty_result_has_its_columns() -> None:
    result = flowrun.sql("SELECT amount FROM orders WHERE amount > 100", orders=ORDERS)
    assert result is not None
    assert (result.rows(), result.arrow().schema.names) == ([], ["amount"])
    assert "0 rows" in repr(result)


def test_event_time_of_a_data_frame() -> None:
    times = pd.to_datetime(["2024-01-01 10:00:00", "2024-01-01 10:00:59", "2024-01-01 10:01:00", "2024-01-01 09:00:00"])
    frame = pd.DataFrame({"at time": times})
    rows = "TUMBLE(TABLE t, DESCRIPTOR(`at time`), INTERVAL '1' MINUTE)"
    windows = f"SELECT window_start, COUNT(*) AS n FROM {rows} GROUP BY window_start, window_end"
    result = flowrun.sql(windows, t=flowrun.table(frame, time="at time", delay="1500ms"), settings={"batch_rows": 1})
    assert result is not None
    assert [n for _, n in sorted(result.rows())] == [2, 1], "the last row is an hour late"


def test_statements_run_one_after_the_other(pipeline: str) -> None:
    result = flowrun.sql(
        """
        CREATE TABLE copied (amount DOUBLE) WITH ('connector' = 'filesystem', 'path' = '${OUT}', 'format' = 'json');
        INSERT INTO copied SELECT amount FROM orders;
        SELECT COUNT(*) AS n FROM copied
        """,
        orders=ORDERS,
        variables={"OUT": "copied"},
    )
    assert result is not None
    assert result.rows() == [(3,)]


def test_declarations_alone_give_nothing() -> None:
    assert flowrun.sql("CREATE TABLE t (n INT) WITH ('connector' = 'datagen')") is None


def test_a_source_without_end_is_cut_in_time() -> None:
    numbers = "CREATE TABLE t (n INT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000');"
    result = flowrun.sql(f"{numbers} SELECT COUNT(*) AS n FROM t", within="300ms")
    assert result is not None
    [(count,)] = result.rows()
    assert count > 0


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C interrupts, also where the process was started with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interruption_gives_what_there_is() -> None:
    timer = threading.Timer(0.5, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    numbers = "CREATE TABLE t (n INT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000');"
    result = flowrun.sql(f"{numbers} SELECT n FROM t")
    timer.join()
    assert result is not None
    assert len(result) > 0


def test_the_tables_of_a_call_are_forgotten() -> None:
    before = dict(memory._inputs)
    flowrun.sql(TOTALS, orders=ORDERS)
    with pytest.raises(PipelineError):
        flowrun.sql("SELECT nothing FROM orders", orders=ORDERS)
    assert memory._inputs == before


@pytest.mark.parametrize(
    ("text", "given", "said"),
    [
        ("SELECT nothing FROM orders", ORDERS, "statement:1:8: error: column 'nothing' does not exist"),
        ("SELECT 1", 5, "a builtins.int is no table"),
        ("SELECT 1", object(), "is no table"),
        ("INSERT INTO orders VALUES ('c', 1.0)", ORDERS, "'orders' is a table that Python has, which is only read"),
    ],
)
def test_what_cannot_be(text: str, given: Any, said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        flowrun.sql(text, orders=given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "table 'orders': it has 2 columns 'a'"),
        (pd.DataFrame([[1, 2]], columns=[1, "1"]), "table 'orders': it has 2 columns '1'"),
        (pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), "table 'orders': it has 2 columns 'a'"),
        (
            pd.DataFrame({"a": [1, "x"]}),
            "cannot be read as a table: Could not convert 'x' .* column a with type object",
        ),
        (pd.DataFrame({"a": [1j]}), "Unsupported numpy type .* column a"),
        (pd.DataFrame({"a": pd.arrays.SparseArray([0, 1])}), "Sparse pandas data"),
        (pd.DataFrame({"a": pd.period_range("2024", periods=2, freq="M")}), "no SQL type stands for"),
        (pd.Series([1], name="a"), "a pandas.core.series.Series is no table"),
        (pd.DataFrame({}), "table 'orders': it has no columns"),
        (pl.DataFrame({"a": pl.Series([object()], dtype=pl.Object)}), "column 'a' holds Python objects"),
        (pl.DataFrame({"a": pl.Series([1], dtype=pl.Int128)}), "cannot be read as a table: Invalid or unsupported"),
        (pl.Series("a", [1]), "Series is no table"),
        (pl.LazyFrame({"a": [1]}), "LazyFrame is no table"),
        ({"a": [1, 2], "b": [1]}, "cannot be read as a table: Column 1 named b expected length 2"),
        ({"a": 1}, "a builtins.dict cannot be read as a table"),
    ],
)
def test_tables_of_python_that_are_none(given: Any, said: str) -> None:
    with pytest.raises(PipelineError, match=said) as caught:
        flowrun.sql("SELECT * FROM orders", orders=given)
    assert len(caught.value.diagnostics) == 1


@pytest.mark.parametrize(
    ("given", "rows"),
    [
        (pd.DataFrame({"a": [None, None]}), [(None,), (None,)]),
        (pl.DataFrame({"a": [None]}), [(None,)]),
        (pd.DataFrame({"a": pd.Categorical(["x", None])}), [("x",), (None,)]),
        (pl.DataFrame({"a": pl.Series(["x", None, "x"], dtype=pl.Categorical)}), [("x",), (None,), ("x",)]),
        (pl.DataFrame({"a": pl.Series(["y", "x"], dtype=pl.Enum(["x", "y"]))}), [("y",), ("x",)]),
    ],
)
def test_columns_that_stand_for_texts(given: Any, rows: list[tuple[Any, ...]]) -> None:
    result = flowrun.sql("SELECT a FROM orders", orders=given)
    assert result is not None
    assert str(result.schema.types[0]) == "STRING"
    assert result.rows() == rows


def test_a_table_may_be_called_as_the_statements_are() -> None:
    result = flowrun.sql(TOTALS.replace("orders", "`text`"), text=ORDERS)
    assert result is not None
    assert len(result) == 2


def test_answers_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert flowrun.sql("SHOW TABLES; DESCRIBE orders; EXPLAIN SELECT * FROM orders", orders=ORDERS) is None
    shown = capsys.readouterr().out
    assert "| table name |" in shown
    assert "| amount | DOUBLE |" in shown
    assert "Scan" in shown


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (None, {}, "a NoneType is no SQL"),
        (Path("a.sql"), {}, "flowrun.pipeline reads files"),
        ("SELECT 1", {"within": 5}, "'5' is no duration"),
    ],
)
def test_arguments_of_another_type(text: Any, words: dict[str, Any], said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        flowrun.sql(text, **words)


def test_values_of_variables_are_texts() -> None:
    result = flowrun.sql("SELECT ${N} AS n", variables={"N": 3})
    assert result is not None
    assert result.rows() == [(3,)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"time": "ts"}, "the table has no column 'ts'"),
        ({"time": "amount", "delay": "soon"}, "'soon' is no duration"),
        ({"key": "usr"}, "did you mean 'user'"),
    ],
)
def test_tables_that_cannot_be(words: dict[str, str], said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        flowrun.table(ORDERS, **words)


def test_a_job_that_fails_says_why() -> None:
    with pytest.raises(JobFailedError, match=r"[Dd]ivision by zero"):
        flowrun.sql("SELECT 1 / CAST(amount - 2 AS INT) FROM orders", orders=ORDERS)


def test_a_pipeline_runs_and_print_sinks_are_results(pipeline: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = flowrun.pipeline(pipeline).run()
    assert done.job.state is JobState.FINISHED
    assert done["shown"].rows() == [(2, 2.5)]
    assert list(done.results) == ["shown"]
    assert capsys.readouterr().out == ""
    assert list(Path("out").glob("part-*"))


def test_a_pipeline_is_looked_at_and_drawn(pipeline: str) -> None:
    made = flowrun.pipeline(pipeline)
    assert made.preview("large").rows() == [(2, 2.5)]  # type: ignore[union-attr]
    everything = made.preview()
    assert isinstance(everything, dict)
    assert {name: len(result) for name, result in everything.items()} == {"shown": 1, "kept": 2}
    assert not Path("out").exists()
    assert (
        "flowchart" in made._repr_mimebundle_()["text/vnd.mermaid"]
        or "graph" in made._repr_mimebundle_()["text/vnd.mermaid"]
    )
    with pytest.raises(PipelineError, match="has no step 'larg'"):
        made.preview("larg")


def test_nothing_of_a_value_is_read_as_html() -> None:
    result = flowrun.sql("SELECT v AS `<b>` FROM t", t=pa.table({"v": ["<script>alert(1)</script>", None]}))
    assert result is not None
    text = result._repr_html_()
    assert "<script>" not in text
    assert "<b>" not in text
    assert "NULL" in text


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[Any, ...]] | None]:
    """A notebook; gives the rows of each table in the order in which they were shown, None for one that is withdrawn."""
    shown: list[list[tuple[Any, ...]] | None] = []

    class Handle:
        def update(self, result: Any, raw: bool = False) -> None:
            shown.append(None if raw else result.rows())

    def display(result: Any, display_id: bool) -> Handle:
        shown.append(result.rows())
        return Handle()

    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    return shown


Shown = list[list[tuple[Any, ...]] | None]
NUMBERS = "CREATE TABLE t (n INT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000');"


def test_a_notebook_shows_rows_while_they_come(cell: Shown) -> None:
    flowrun.sql(f"{NUMBERS} SELECT n FROM t", within="900ms")
    *tables, last = cell
    assert len(tables) > 1
    assert [len(t or ()) for t in tables] == sorted(len(t or ()) for t in tables)
    assert last is None, "the cell shows what it is given"


def test_what_a_cell_is_given_is_shown_once(cell: Shown) -> None:
    """By the cell itself. The rows of queries before it nobody else would show."""
    result = flowrun.sql("SELECT 1 AS a; SELECT 2 AS b")
    assert result is not None
    assert result.rows() == [(2,)]
    assert cell == [[(1,)]]


def test_a_notebook_shows_the_rows_of_a_pipeline_at_its_end(cell: Shown, pipeline: str) -> None:
    flowrun.pipeline(pipeline).run()
    assert cell[-1] == [(2, 2.5)]


def test_the_rows_of_the_last_query_are_given_also_before_an_insert() -> None:
    result = flowrun.sql(
        "CREATE TABLE hole (n INT) WITH ('connector' = 'blackhole'); SELECT 1 AS a; INSERT INTO hole VALUES (2)"
    )
    assert result is not None
    assert result.rows() == [(1,)]


def test_names_are_proposed_before_they_are_imported() -> None:
    asked = "import flowrun; print(*dir(flowrun))"
    shown = subprocess.run([sys.executable, "-c", asked], check=True, capture_output=True, text=True).stdout
    assert {"pipeline", "sql", "table", "udf"} <= set(shown.split())
