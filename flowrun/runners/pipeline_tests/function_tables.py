"""Makes tables of calls, as a test writes them, into what stands for the functions of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.types import DataType, array, timestamp
from flowrun.core.types import row as row_type
from flowrun.errors import Diagnostic, PipelineError, did_you_mean
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.pipeline_tests.declaration import OTHER_ROW, RESULT, ROW, ROWS, WINDOW_BOUNDS
from flowrun.frontend.pipeline_tests.rows import Cell, Value, WrittenRow, WrittenRows, to_batch
from flowrun.frontend.source_text import SourceText
from flowrun.operators.function_loading import load_attribute
from flowrun.plan.co_process import CoProcess
from flowrun.plan.expressions import AggregateCall, PythonCall, UserAggregateReference
from flowrun.plan.nodes import AsyncMap, PlanNode, Process, PythonMap
from flowrun.plan.relational import TableFunctionCall
from flowrun.plan.windows import CountWindow, GlobalWindow
from flowrun.runners.pipeline_tests import row_tables
from flowrun.runners.pipeline_tests.call_tables import AggregateTable, Calls, CallTable, Role, reference_to
from flowrun.runners.pipeline_tests.row_tables import RowTable

T = TypeVar("T")
U = TypeVar("U")
_Rows: TypeAlias = "PythonMap | AsyncMap | Process | CoProcess"
_TIMER_METHODS = ("on_timer", "on_timers")


class _RefusedError(Exception):
    """The table cannot stand for the function."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


@record
class _Form:
    """The columns of the table of a function on rows.

    Attributes:
        given: what a call is given: all of these, or, if they are alternatives, one of them.
        bounds: columns that may say of which window the rows are.
        either: `given` are alternatives, of which each row may have another one.
        hint: a row of such a table.
    """

    given: tuple[str, ...]
    hint: str
    bounds: tuple[str, ...] = ()
    either: bool = False

    @property
    def columns(self) -> str:
        """For messages."""
        given = " or ".join(f"'{name}'" for name in self.given)
        return f"{given}{' for the other stream' if self.either else ''} and '{RESULT}'"


_ONE = _Form((ROW,), "- {row: {id: 1, amount: 5}, result: [{id: 1, fee: 0.5}]}")
_MAP = _Form((ROW,), "- {row: {id: 1, amount: 5}, result: {id: 1, fee: 0.5}}")
_KEYED = _Form(
    (ROW, ROWS), "- {row: {id: 1, amount: 5}, result: [{id: 1, fee: 0.5}]}; rows: all rows of the key so far"
)
_WINDOWED = _Form((ROWS,), "- {rows: [{amount: 5}, {amount: 6}], result: [{total: 11}]}", WINDOW_BOUNDS)
_UNBOUNDED = replace(_WINDOWED, bounds=())
_TWO = _Form((ROW, OTHER_ROW), "- {other: {id: 1, city: Rome}, result: []}", either=True)


class FunctionTables:
    """The tables of one test.

    Args:
        source: the text of the tests.
        calls: the tables, by the `module:name` of the function that each stands for.
        diagnostics: receives every problem.
    """

    def __init__(self, source: SourceText, calls: Mapping[str, WrittenRows], diagnostics: Diagnostics) -> None:
        self._source = source
        self._calls = calls
        self._diagnostics = diagnostics

    # -- functions on values

    def call(self, call: PythonCall) -> PythonCall:
        """A call of a function in expressions, answered by its table; as it was, if the table is wrong, which is reported."""

        def answered() -> PythonCall:
            made = self._of_values(call.reference, [a.type for a in call.arguments], call.type, Role.SCALAR)
            return replace(call, reference=reference_to(CallTable(made).call), search_path=(), vectorised=True)

        return self._reporting(call.reference, answered, call)

    def aggregate(self, call: AggregateCall, reference: str) -> AggregateCall:
        """A call of an aggregate, likewise."""

        def answered() -> AggregateCall:
            made = self._of_values(reference, [array(a.type) for a in call.arguments], call.type, Role.AGGREGATE)
            return replace(call, reference=UserAggregateReference(reference_to(AggregateTable(made)), retractable=True))

        return self._reporting(reference, answered, call)

    def _table_function(self, node: TableFunctionCall) -> TableFunctionCall:
        added = Schema(node.schema.fields[len(node.input.schema) :])
        made = self._of_values(node.function, [a.type for a in node.arguments], _rows_of(added), Role.TABLE)
        return replace(node, function=reference_to(CallTable(made).call), search_path=())

    def _of_values(self, reference: str, types: Sequence[DataType], result: DataType, role: Role) -> Calls:
        """The calls of a function that is given values.

        Raises:
            _RefusedError: the table has other columns than a call.
            PipelineError: its values are wrong.
        """
        written = self._calls[reference]
        names = tuple(n for n in written.columns if n != RESULT)
        if written.rows and (len(names) != len(types) or RESULT not in written.columns):
            problem = f"the table that stands for function '{reference}' has {len(names)} columns beside '{RESULT}', but it is called with"
            hint = f"name a column for each argument, in their order, and '{RESULT}'"
            raise _RefusedError(f"{problem} {len(types)} argument{'s' * (len(types) != 1)}", hint)
        if not written.rows:
            names = tuple(f"argument {i + 1}" for i in range(len(types)))
        if role is Role.TABLE:
            written = _with_lists(written, (RESULT,))
        schema = Schema.from_pairs([*zip(names, types, strict=True), (RESULT, result)])
        columns = self._columns(reference, written, schema)
        return self._made(reference, names, columns.columns[:-1], columns.column(RESULT), role)

    # -- functions on rows

    def node(self, node: PlanNode) -> PlanNode:
        """A node whose function is a table; as it was, if the table is wrong, which is reported."""
        assert isinstance(node, TableFunctionCall | PythonMap | AsyncMap | Process | CoProcess)

        def answered() -> PlanNode:
            if isinstance(node, TableFunctionCall):
                return self._table_function(node)
            return self._on_rows(node, self._calls[node.function])

        return self._reporting(node.function, answered, node)

    def _on_rows(self, node: _Rows, written: WrittenRows) -> PlanNode:
        """The node with its table.

        Raises:
            _RefusedError: the table cannot stand for the function.
            PipelineError: rows of the table are wrong.
        """
        if isinstance(node, Process | CoProcess) and _has_timers(node):
            raise _RefusedError(
                f"function '{node.function}' has timers, and a table cannot say what it sends when they fire",
                "let another class stand for it: module:Class",
            )
        form = _form(node)
        self._check_columns(node, written, form)
        written = _with_lists(written, (ROWS, *node.side_outputs, *(() if form is _MAP else (RESULT,))))
        if isinstance(node, CoProcess):
            return self._two_streams(node, written)
        known = self._known(node.function, written, form.given, node.input.schema)
        row = _row_of(known)
        if isinstance(node, Process) and ROWS in written.columns:
            return self._many_rows(node, written, known, row)
        columns = self._of_rows(node, written, [(ROW, row)])
        given: pa.StructArray = columns.column(ROW)
        calls = self._sending(node, known.names, given.flatten(), columns, Role.ROW)
        table = RowTable(calls, known.names)
        match node:
            case PythonMap():
                function: object = row_tables.MapTable(table, flat=node.flat)
                return replace(node, function=reference_to(function), row=False, search_path=())
            case AsyncMap():
                made = reference_to(row_tables.async_class(table))
                return replace(node, function=made, arguments={}, search_path=(), retry=None, timeout_ms=None)
        return _processed(node, row_tables.process_class(table, keyed=node.keys is not None))

    def _many_rows(self, node: Process, written: WrittenRows, known: Schema, row: DataType) -> PlanNode:
        """A function whose table has lists of rows: those of a key so far, or of a window."""
        bounds = [i for i, name in enumerate(WINDOW_BOUNDS) if name in written.columns and node.windows is not None]
        given = [(ROWS, array(row)), *((WINDOW_BOUNDS[i], timestamp(3)) for i in bounds)]
        columns = self._of_rows(node, written, given)
        role = Role.ROWS if node.windows is None else Role.WINDOW
        names = tuple(name for name, _ in given)
        table = RowTable(self._sending(node, names, columns.columns[: len(given)], columns, role), known.names)
        if node.windows is None:
            return _processed(node, row_tables.history_class(table, row))
        return _processed(node, row_tables.window_class(table, bounds))

    def _two_streams(self, node: CoProcess, written: WrittenRows) -> PlanNode:
        first = self._known(node.function, written, (ROW,), node.left.schema)
        second = self._known(node.function, written, (OTHER_ROW,), node.right.schema)
        columns = self._of_rows(node, written, [(ROW, _row_of(first)), (OTHER_ROW, _row_of(second))])
        calls = self._sending(node, (ROW, OTHER_ROW), columns.columns[:2], columns, Role.ROW)
        function = row_tables.co_process_class(
            RowTable(calls, first.names),
            RowTable(calls, second.names),
            keyed=node.left_keys is not None,
            broadcast=node.broadcast,
        )
        return _processed(node, function)

    def _check_columns(self, node: _Rows, written: WrittenRows, form: _Form) -> None:
        """That the table has the columns that it needs, and each row says what the call is given.

        Raises:
            _RefusedError: it has other columns.
            PipelineError: rows do not say what the call is given, or two things.
        """
        sides = node.side_outputs
        taken = next((s for s in sides if s in (*form.given, *form.bounds, RESULT)), None)
        if taken is not None:
            raise _RefusedError(
                f"function '{node.function}' has a side output '{taken}', which is what a column of its table is called",
                "let another function stand for it: module:name",
            )
        named = set(written.columns)
        given = [name for name in form.given if name in named]
        if RESULT not in named or not given or (len(given) > 1 and not form.either):
            raise _RefusedError(
                f"function '{node.function}' is given rows and gives rows: the columns of its table are {form.columns}",
                form.hint,
            )
        for name in written.columns:
            if name not in (*form.given, *form.bounds, *sides, RESULT):
                hint = did_you_mean(name, [*form.given, *form.bounds, *sides, RESULT])
                raise _RefusedError(
                    f"the table that stands for function '{node.function}' has no use for '{name}'", hint
                )
        wanted = " or ".join(f"'{name}'" for name in (form.given if form.either else given))
        message = f"a row of the table that stands for function '{node.function}' must have {wanted}"
        problems = [
            Diagnostic(message, row.location, hint=form.hint)
            for row in written.rows
            if sum(name in row.cells and row.cells[name].value is not None for name in given) != 1
        ]
        if problems:
            raise PipelineError(problems)

    def _known(self, reference: str, written: WrittenRows, given: Sequence[str], schema: Schema) -> Schema:
        """The columns of rows that the table names. Raises _RefusedError if the function is given none of such a name."""
        named = dict.fromkeys(n for row in written.rows for name in given for n in _names(row.cells.get(name)))
        unknown = next((n for n in named if n not in schema), None)
        if unknown is not None:
            hint = did_you_mean(unknown, schema.names)
            raise _RefusedError(f"the rows that function '{reference}' is given have no column '{unknown}'", hint)
        return Schema(tuple(f for f in schema if f.name in named))

    def _of_rows(self, node: _Rows, written: WrittenRows, given: Sequence[tuple[str, DataType]]) -> pa.RecordBatch:
        """The columns of a table of calls with rows. Raises PipelineError."""
        sent = node.schema
        if isinstance(node, Process) and node.called is not None:
            sent = node.called.columns
        result = _row_of(sent) if _form(node) is _MAP else _rows_of(sent)
        sides = [(tag, _rows_of(schema)) for tag, schema in node.side_outputs.items()]
        return self._columns(node.function, written, Schema.from_pairs([*given, (RESULT, result), *sides]))

    def _sending(
        self, node: _Rows, names: Sequence[str], arguments: Sequence[pa.Array], columns: pa.RecordBatch, role: Role
    ) -> Calls:
        results = columns.column(RESULT)
        if _form(node) is _MAP:
            results = pa.ListArray.from_arrays(np.arange(len(results) + 1, dtype=np.int32), results)
        sides = {tag: columns.column(tag) for tag in node.side_outputs}
        return replace(self._made(node.function, names, arguments, results, role), sides=sides)

    # -- both

    def _reporting(self, reference: str, make: Callable[[], T], otherwise: U) -> T | U:
        """What is made with a table; `otherwise` if the table is wrong, which is reported."""
        try:
            return make()
        except _RefusedError as refusal:
            self._diagnostics.error(str(refusal), self._calls[reference].node.location, hint=refusal.hint)
        except PipelineError as error:
            self._diagnostics.errors_of(error)
        return otherwise

    def _columns(self, reference: str, written: WrittenRows, schema: Schema) -> pa.RecordBatch:
        """The values of a table. Raises PipelineError."""
        problems = Diagnostics(self._source)
        batch = to_batch(written, schema, f"the table that stands for function '{reference}'", problems)
        problems.raise_if_errors()
        assert batch is not None
        return batch.columns

    def _made(
        self, reference: str, names: Sequence[str], arguments: Sequence[pa.Array], results: pa.Array, role: Role
    ) -> Calls:
        at = self._calls[reference].node.location
        return Calls(reference, tuple(names), tuple(arguments), results, at, self._source.line(at.line), role)


def _form(node: _Rows) -> _Form:
    match node:
        case PythonMap(flat=False):
            return _MAP
        case CoProcess():
            return _TWO
        case Process(windows=windows) if windows is not None:
            return _UNBOUNDED if isinstance(windows.window, CountWindow | GlobalWindow) else _WINDOWED
        case Process(keys=keys) if keys is not None:
            return _KEYED
    return _ONE


def _has_timers(node: Process | CoProcess) -> bool:
    function = load_attribute(node.function, node.search_path)
    return any(hasattr(function, method) for method in _TIMER_METHODS)


def _processed(node: Process | CoProcess, function: type) -> PlanNode:
    """The node with another class, which has a state of its own."""
    return replace(node, function=reference_to(function), arguments={}, search_path=(), tables=None)


def _row_of(schema: Schema) -> DataType:
    return row_type(*((f.name, f.type) for f in schema))


def _rows_of(schema: Schema) -> DataType:
    return array(_row_of(schema))


def _names(cell: Cell | None) -> Iterator[str]:
    """The names of columns in a row, or in several."""
    value = None if cell is None else cell.value
    for row in value if isinstance(value, list) else [value]:
        if isinstance(row, dict):
            yield from row


def _with_lists(written: WrittenRows, columns: Sequence[str]) -> WrittenRows:
    """The rows, where one row may stand for a list of rows."""
    rows = (
        WrittenRow(row.kind, {n: _listed(c) if n in columns else c for n, c in row.cells.items()}, row.location)
        for row in written.rows
    )
    return WrittenRows(written.node, tuple(rows))


def _listed(cell: Cell) -> Cell:
    value: Value = [cell.value] if isinstance(cell.value, dict) else cell.value
    return Cell(value, cell.location)
