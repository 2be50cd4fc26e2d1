"""Ties a test to the pipeline: what it names is there, and its rows are rows of the tables that they are given for or expected of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import Location, did_you_mean
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.pipeline_tests.declaration import STEP
from flowrun.frontend.pipeline_tests.document import End, Expected, Give, Look, PipelineTest, Reach, Rest
from flowrun.frontend.pipeline_tests.rows import to_batch
from flowrun.runners.pipeline_tests.captured import Change
from flowrun.runners.pipeline_tests.subject import Subject, TestedSink


@record(eq=False)
class ExpectedRows:
    """What is expected of a sink, in its columns.

    Attributes:
        expected: as it is written.
        sink: the sink.
        columns: those that are compared.
        changes: the rows, in their order; inserts where no kind is written.
    """

    expected: Expected
    sink: TestedSink
    columns: tuple[str, ...]
    changes: tuple[Change, ...]


@record(eq=False)
class BoundTest:
    """A test that can run.

    Attributes:
        test: as it is written.
        subject: the pipeline.
        batches: the rows of each `Give`, by `id`.
        expected: the rows of each `Expected`, by `id`.
    """

    test: PipelineTest
    subject: Subject
    batches: Mapping[int, RecordBatch]
    expected: Mapping[int, ExpectedRows]


def bind(test: PipelineTest, subject: Subject, diagnostics: Diagnostics) -> BoundTest | None:
    """The test with its pipeline; None if something is wrong, which `diagnostics` then says."""
    binder = _Binder(subject, diagnostics)
    for action in test.actions:
        binder.action(action)
    for expected in test.expected:
        binder.expect(expected)
    return None if binder.failed else BoundTest(test, subject, binder.batches, binder.expected)


class _Binder:
    def __init__(self, subject: Subject, diagnostics: Diagnostics) -> None:
        self._subject = subject
        self._diagnostics = diagnostics
        self.failed = False
        self.batches: dict[int, RecordBatch] = {}
        self.expected: dict[int, ExpectedRows] = {}
        self._ended: set[str] = set()

    def action(self, action: object) -> None:
        """Check one thing that happens."""
        match action:
            case Give():
                if self._goes_on(action.source, action.location):
                    self._give(action)
            case Reach(source=source, location=at) if source is not None:
                if self._goes_on(source, at) and source not in self._subject.timed:
                    hint = "its table declares no watermark, so nothing goes by its event time"
                    self._error(f"source '{source}' has no event time", at, hint)
            case Reach(location=at) if not self._subject.timed:
                self._error("no source of the pipeline has event time", at, "declare a watermark, or leave this out")
            case Rest(source=source, location=at):
                self._goes_on(source, at)
            case End(source=source, location=at):
                if source is None:
                    self._ended |= set(self._subject.tables)
                elif self._goes_on(source, at):
                    self._ended.add(source)
            case Look(expected=several):
                for expected in several:
                    self.expect(expected)

    def _error(self, message: str, at: Location, hint: str | None = None) -> None:
        self.failed = True
        self._diagnostics.error(message, at, hint=hint)

    def _goes_on(self, source: str, at: Location) -> bool:
        """Whether there is such a source and it has not ended."""
        known = self._subject.tables
        if source not in known:
            hint = did_you_mean(source, [*known, *(key.name for key in STEP.keys)])
            self._error(f"the pipeline reads no source '{source}'", at, hint)
            return False
        if source in self._ended:
            self._error(f"source '{source}' has ended before", at, "let it end in a later step")
            return False
        return True

    def _give(self, action: Give) -> None:
        table = self._subject.tables[action.source]
        what = f"source '{action.source}'"
        batch = to_batch(action.rows, table.schema, what, self._diagnostics)
        if batch is None:
            self.failed = True
            return
        kinds = self._subject.kinds[action.source]
        for row in action.rows.rows:
            if row.kind is not None and row.kind not in kinds:
                taken = ", ".join(k.symbol for k in kinds)
                self._error(f"{what} gives {taken} only, not {row.kind.symbol}", row.location)
                return
        self.batches[id(action)] = RecordBatch(batch.columns) if kinds == (RowKind.INSERT,) else batch

    def expect(self, expected: Expected) -> None:
        """Check what is expected of a sink."""
        sink = self._subject.sink(expected.sink)
        if sink is None:
            names = [s.name for s in self._subject.sinks]
            self._error(
                f"the pipeline has no sink '{expected.sink}'", expected.location, did_you_mean(expected.sink, names)
            )
            return
        what = f"sink '{sink.name}'"
        named = tuple(c for c in expected.rows.columns if c in sink.schema.names)
        columns = tuple(n for n in sink.compared if n in named) if named else sink.compared
        if not self._check_kinds(expected, sink):
            return
        unknown = [c for c in expected.rows.columns if c not in sink.schema.names]
        schema = sink.schema if unknown else _selected(sink.schema, tuple(n for n in sink.schema.names if n in columns))
        batch = to_batch(expected.rows, schema, what, self._diagnostics)
        self._check_key(expected, sink)
        if batch is None:
            self.failed = True
            return
        values = [c.to_pylist() for c in batch.columns.columns]
        rows = zip(*values, strict=True)
        kinds = [row.kind or RowKind.INSERT for row in expected.rows.rows]
        self.expected[id(expected)] = ExpectedRows(expected, sink, schema.names, tuple(map(Change, kinds, rows)))

    def _check_kinds(self, expected: Expected, sink: TestedSink) -> bool:
        written = [row for row in expected.rows.rows if row.kind is not None]
        if written and not expected.changes:
            self._error(
                "a kind of change is written, but the table that is left is compared",
                written[0].location,
                "write `as: changes` beside `rows:`, or leave the kinds out",
            )
            return False
        return True

    def _check_key(self, expected: Expected, sink: TestedSink) -> None:
        for column in expected.key:
            if column not in sink.schema.names:
                hint = did_you_mean(column, sink.schema.names)
                self._error(f"sink '{sink.name}' has no column '{column}'", expected.location, hint)


def _selected(schema: Schema, names: Sequence[str]) -> Schema:
    return Schema(tuple(f for f in schema if f.name in names))


def projected(changes: Iterable[Change], schema: Schema, columns: Sequence[str]) -> list[Change]:
    """Changes with some of the columns only."""
    places = [schema.index(name) for name in columns]
    if places == list(range(len(schema))):
        return list(changes)
    return [Change(c.kind, tuple(c.row[i] for i in places)) for c in changes]
