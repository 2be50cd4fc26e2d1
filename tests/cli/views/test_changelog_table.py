"""The result of a query on a terminal: a table that takes changes in; lines elsewhere."""

from __future__ import annotations

import io
from datetime import datetime

import pyarrow as pa
import pytest
from rich.console import Console

from flowrun.cli.views.changelog_table import ResultTable, ResultView, RowPrinter, display_order, result_view
from flowrun.connectors.live_rows import listener_of
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import NullOrder, RankFunction, SortKey
from flowrun.core.types import BIGINT, STRING, map_of, timestamp
from flowrun.errors import OptionError
from flowrun.plan.nodes import NodeHints, Plan, Sink, TableReference
from flowrun.plan.relational import Rank
from flowrun.runners.compile import compile_pipeline
from tests.plan.plans import calc, scan

SCHEMA = Schema.of(name=STRING, n=BIGINT)


def changes(*rows: tuple[int, str | None, int | None]) -> RecordBatch:
    columns = pa.RecordBatch.from_pylist([{"name": a, "n": n} for _, a, n in rows], schema=SCHEMA.arrow)
    return RecordBatch(columns, row_kinds=pa.array([k for k, _, _ in rows], pa.int8()))


def text_of(table: ResultTable, most: int = 10) -> list[str]:
    console = Console(file=io.StringIO(), width=60)
    console.print(table.render(most))
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines() if line.strip()]  # type: ignore[attr-defined]


def test_an_updating_result_shows_what_is_in_it_now_the_newest_first() -> None:
    table = ResultTable("SELECT", SCHEMA, updating=True)
    table.take(changes((0, "a", 1), (0, "b", 1)))
    table.take(changes((1, "a", 1), (2, "a", 2), (0, "c", None)))
    table.take(changes((3, "b", 1)))
    assert text_of(table) == ["name n", "─" * 13, "c NULL", "a 2", "2 rows"]
    assert text_of(table, 1)[2:] == ["c NULL", "2 rows, 1 of them shown"]
    assert table.changes == 6


def test_a_row_of_a_key_that_was_there_keeps_its_place() -> None:
    table = ResultTable("SELECT", SCHEMA, updating=True, key=(0,))
    table.take(changes((0, "a", 1), (0, "b", 1)))
    assert text_of(table)[2:] == ["a 1", "b 1", "2 rows"]
    table.take(changes((1, "a", 1), (2, "a", 2), (0, None, 5), (1, "b", 1), (2, "b", 2)))
    assert text_of(table)[2:] == ["a 2", "b 2", "NULL 5", "3 rows"]
    table.take(changes((3, "a", 2)))
    table.take(changes((3, None, 5)))
    assert text_of(table)[2:] == ["b 2", "1 row"]


def test_times_and_numbers_are_not_cut_in_two() -> None:
    schema = Schema.of(at=timestamp(3), text=STRING, until=timestamp(3))
    row = {"at": datetime(2024, 3, 1, 10), "text": "words that are many " * 5, "until": datetime(2024, 3, 1, 11)}
    table = ResultTable("SELECT", schema, updating=False)
    table.take(RecordBatch(pa.RecordBatch.from_pylist([row], schema=schema.arrow)))
    lines = text_of(table)
    assert lines[2].startswith("2024-03-01 10:00:00.000")
    assert lines[2].endswith("2024-03-01 11:00:00.000")


WIDE = Schema((*(Field(f"column {i}", STRING) for i in range(8)), Field("nested", map_of(STRING, BIGINT))))


def test_columns_that_do_not_fit_beside_each_other_stand_below_each_other() -> None:
    table = ResultTable("SELECT", WIDE, updating=False)
    row = {"column 0": None, **{f"column {i}": "a value" for i in range(1, 8)}, "nested": [("a longer key", 7)]}
    table.take(RecordBatch(pa.RecordBatch.from_pylist([row, row, row], schema=WIDE.arrow)))
    first = ["column 0 NULL", *(f"column {i} a value" for i in range(1, 8)), "nested {a longer key=7}"]
    assert text_of(table) == [*first, *first, *first, "3 rows"]
    assert text_of(table, 1) == [*first, "3 rows, 1 of them shown"]
    console = Console(file=io.StringIO(), width=60)
    console.print(table.render(10, 25))  # lines: those of two rows, while a job runs
    assert console.file.getvalue().count("column 0") == 2  # type: ignore[attr-defined]
    wide = Console(file=io.StringIO(), width=160)
    wide.print(table.render(10))
    assert wide.file.getvalue().count("column 0") == 1  # type: ignore[attr-defined]


def test_a_result_of_inserts_counts_all_and_keeps_the_last() -> None:
    table = ResultTable("SELECT", SCHEMA, updating=False)
    for start in range(0, 5_000, 100):
        table.take(RecordBatch(changes(*((0, "a", start + i) for i in range(100))).columns))
    rows, count = table.shown(3)
    assert (rows.column("n").to_pylist(), count) == ([4999, 4998, 4997], 5_000)
    assert table._kept < 1_200, "what nobody will see is forgotten"


def test_a_result_with_an_order_keeps_it() -> None:
    table = ResultTable("SELECT", SCHEMA, updating=True, order=((1, True, False), (0, False, False)))
    table.take(changes((0, "b", 1), (0, "z", 3), (0, "x", None), (0, "a", 3)))
    rows, _ = table.shown(10)
    assert rows.column("name").to_pylist() == ["a", "z", "b", "x"]


def test_empty_results_are_tables_too() -> None:
    for updating in (True, False):
        assert text_of(ResultTable("SELECT", SCHEMA, updating=updating))[-1] == "0 rows"


def test_the_order_of_a_limit_is_found_through_projections() -> None:
    source = scan()
    keys = (SortKey(2, True, NullOrder.LAST), SortKey(0))
    rank = Rank(source.schema, NodeHints(), source, (), keys, RankFunction.ROW_NUMBER, 1, 3, rank_column=False)
    shown = calc(rank, "id", "status", "amount")
    sink = Sink(shown.schema, NodeHints(), shown, TableReference("SELECT", "print", {"live": "true"}))
    assert display_order(sink) == ((2, True, False), (0, False, True))
    hidden = calc(rank, "status")
    assert display_order(Sink(hidden.schema, NodeHints(), hidden, sink.table)) == ()


def test_csv_and_json_lines_say_the_change_only_if_there_are_changes() -> None:
    def printed(form: str, *, updating: bool) -> list[str]:
        stream = io.StringIO()
        printer = RowPrinter(SCHEMA, form, updating=updating, stream=stream)
        printer.take(changes((0, "a", 1), (1, "a", 1), (2, "a", 2)) if updating else changes((0, "a,", 1)))
        return stream.getvalue().splitlines()

    assert printed("json", updating=False) == ['{"name":"a,","n":1}']
    assert printed("csv", updating=False) == ["name,n", '"a,",1']
    assert printed("csv", updating=True) == ["op,name,n", "+I,a,1", "-U,a,1", "+U,a,2"]
    assert printed("json", updating=True)[1] == '{"before":{"name":"a","n":1},"after":null,"op":"d"}'


def test_columns_without_a_form_in_csv_are_refused() -> None:
    with pytest.raises(OptionError):
        RowPrinter(Schema((Field("m", map_of(STRING, BIGINT)),)), "csv", updating=False, stream=io.StringIO())


def test_a_view_takes_rows_while_it_is_open_and_leaves_the_table_behind() -> None:
    console = Console(file=io.StringIO(), width=60)
    source = scan()
    sink = Sink(source.schema, NodeHints(), source, TableReference("SELECT", "print", {"live": "true"}))
    view = result_view(Plan("p", (sink,)), console)
    assert isinstance(view, ResultView)
    with view:
        listener = listener_of("SELECT")
        assert listener is not None
    assert listener_of("SELECT") is None
    assert "0 rows" in console.file.getvalue()  # type: ignore[attr-defined]
    other = Sink(source.schema, NodeHints(), source, TableReference("out", "print", {}))
    assert result_view(Plan("p", (other,)), console) is None


def test_compiled_pipelines_show_their_live_sinks(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "p.yaml"
    file.write_text(
        "sources: {s: {connector: datagen, number-of-rows: 3, schema: {a: BIGINT}}}\n"
        "sinks: {out: {from: s, connector: print, live: true}}\n"
    )
    assert result_view(compile_pipeline(file).optimised, Console(file=io.StringIO())) is not None


def test_a_final_result_is_shown_as_it_comes() -> None:
    table = ResultTable("SELECT", SCHEMA, updating=False, final=True)
    table.take(changes((0, "a", 1), (0, "b", 2)))
    assert [line for line in text_of(table) if line[-1].isdecimal()] == ["a 1", "b 2"]
