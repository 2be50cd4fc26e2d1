"""Runs a test in all of its ways, and says what is not as it should be."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from flowrun.core.record import record
from flowrun.errors import Location, did_you_mean
from flowrun.frontend.pipeline_tests.declaration import AS_WRITTEN, RESCALED, RESTORED, ROW_BY_ROW, SPARK
from flowrun.frontend.pipeline_tests.document import Expected, Late, Look, PipelineTest
from flowrun.graph.explain.drawing import counted
from flowrun.runners.pipeline_tests.binding import BoundTest, ExpectedRows, projected
from flowrun.runners.pipeline_tests.captured import Change, table_of
from flowrun.runners.pipeline_tests.comparing import Difference, as_rows, difference
from flowrun.runners.pipeline_tests.run import Outcome, Seen, run_test
from flowrun.runners.pipeline_tests.subject import TestedSink

if TYPE_CHECKING:
    from flowrun.runners.pipeline_tests.spark_run import SparkTests

KIND_COLUMN = "op"
HOW = {
    RESTORED: "killed and restored between all steps",
    RESCALED: "killed and restored at another parallelism between all steps",
    ROW_BY_ROW: "read in batches of one row",
    SPARK: "run on Spark",
}
"""What is done to the pipeline in each way to run."""


@record(eq=False)
class Failure:
    """What is not as it should be.

    Attributes:
        message: what.
        location: of what is expected, or of the test.
        variant: the way in which the test ran.
        difference: the rows that differ.
        made_at: where the step stands that made the rows.
    """

    message: str
    location: Location
    variant: str = AS_WRITTEN
    difference: Difference | None = None
    made_at: Location | None = None


@record(eq=False)
class Result:
    """What came of a test.

    Attributes:
        bound: the test.
        failures: none: it passed.
        variants: the ways in which it ran.
        outcome: of the run as it is written.
        not_on_spark: why it did not run on Spark, where it was to.
    """

    bound: BoundTest
    failures: tuple[Failure, ...]
    variants: tuple[str, ...]
    outcome: Outcome
    not_on_spark: str | None = None

    @property
    def passed(self) -> bool:
        """Whether all is as it should be."""
        return not self.failures


def check(bound: BoundTest, spark: SparkTests | None = None) -> Result:
    """Run a test as it is written, and if all is as expected in its other ways, and compare these with it; on Spark, too, if given."""
    test, subject = bound.test, bound.subject
    outcome = run_test(test, subject, bound.batches, AS_WRITTEN)
    failures = _against_expectations(bound, outcome)
    ran = [AS_WRITTEN]
    for variant in test.surroundings.variants:
        if variant not in (AS_WRITTEN, SPARK) and not failures:
            ran.append(variant)
            other = run_test(test, subject, bound.batches, variant)
            failures = compare_outcomes(bound, outcome, other, variant)
    reason: str | None = None
    if spark is not None and not failures and SPARK in test.surroundings.variants:
        from flowrun.runners.pipeline_tests.spark_run import looks_at_end_only, run_on_spark

        on_spark = run_on_spark(spark, bound, outcome)
        if isinstance(on_spark, str):
            reason = on_spark
        else:
            ran.append(SPARK)
            failures = compare_outcomes(bound, looks_at_end_only(outcome), on_spark, SPARK)
    return Result(bound, tuple(failures), tuple(ran), outcome, reason)


def _against_expectations(bound: BoundTest, outcome: Outcome) -> list[Failure]:
    test = bound.test
    failed = _of_error(test, outcome)
    if failed is not None:
        return [failed]
    failures: list[Failure] = []
    looks = [a for a in test.actions if isinstance(a, Look)]
    for look, seen in zip(looks, outcome.looks, strict=False):  # a job that fails does not come to all of them
        for expected in look.expected:
            failures += _of_sink(bound.expected[id(expected)], seen, so_far=True)
        failures += _of_late(look.late, seen, outcome.rows)
    at_end = outcome.looks[-1]
    for expected in test.expected:
        failures += _of_sink(bound.expected[id(expected)], at_end, so_far=False)
    return failures + _of_late(test.late, at_end, outcome.rows)


def _of_error(test: PipelineTest, outcome: Outcome) -> Failure | None:
    if test.error is None:
        if outcome.error is None:
            return None
        at = outcome.failed_at or test.location
        return Failure(f"the job failed: {outcome.error}", at)
    if outcome.error is None:
        return Failure(f"the job did not fail; expected was an error with '{test.error}'", test.location)
    if test.error not in outcome.error:
        return Failure(
            f"the job failed otherwise: expected was an error with '{test.error}', it is: {outcome.error}",
            test.location,
        )
    return None


def came(rows: ExpectedRows, seen: Seen, *, so_far: bool) -> list[Change]:
    """What is compared with expected rows, of what there was at a moment; a table as inserts.

    Args:
        rows: that are expected.
        seen: what there was.
        so_far: a step looks, which sees only what came since the step before that looked, where no rows change.
    """
    sink, expected = rows.sink, rows.expected
    changes = list(seen.changes[sink.name])
    if so_far and (expected.changes or not sink.updating):
        changes = changes[seen.before[sink.name] :]
    picked = projected(changes, sink.schema, rows.columns)
    if expected.changes or not sink.updating:
        return picked
    whole = table_of(changes)
    return projected([Change(changes[0].kind, row) for row in whole] if changes else [], sink.schema, rows.columns)


def as_expected(rows: ExpectedRows, seen: Seen, *, so_far: bool) -> Difference | None:
    """What differs from expected rows at a moment; None: nothing. `so_far` as in `came`."""
    expected = rows.expected
    there = came(rows, seen, so_far=so_far)
    columns, wanted, found = rows.columns, [c.row for c in rows.changes], [c.row for c in there]
    if expected.changes:
        columns, wanted, found = (KIND_COLUMN, *columns), as_rows(rows.changes), as_rows(there)
    key = expected.key or tuple(k for k in rows.sink.key if k in columns)
    return difference(columns, wanted, found, in_order=expected.in_order, key=key, tolerance=expected.tolerance)


def _of_sink(rows: ExpectedRows, seen: Seen, *, so_far: bool) -> list[Failure]:
    sink = rows.sink
    differs = as_expected(rows, seen, so_far=so_far)
    if differs is None:
        return []
    what = "has the rows that are expected in another order" if differs.order else "has other rows than expected"
    return [Failure(f"sink '{sink.name}' {what}", rows.expected.location, AS_WRITTEN, differs, sink.location)]


def _of_late(late: Late | None, seen: Seen, operators: Collection[str]) -> list[Failure]:
    """Late rows that differ in number, and steps that are none of the pipeline's `operators`."""
    if late is None:
        return []
    for step in late.counts if isinstance(late.counts, Mapping) else ():
        if step not in operators:
            known = did_you_mean(step, [name for name in operators if ": " not in name])
            return [Failure(f"no step '{step}' could drop late rows; {known}", late.location)]
    shown = ", ".join(f"{n} by '{step}'" for step, n in sorted(seen.late.items())) or "none"
    total = sum(seen.late.values())
    if isinstance(late.counts, int):
        if total == late.counts:
            return []
        return [Failure(f"{counted(late.counts, 'row')} dropped as late expected, but dropped: {shown}", late.location)]
    wrong = {s: n for s, n in late.counts.items() if seen.late.get(s, 0) != n}
    if not wrong and total == sum(late.counts.values()):
        return []
    wanted = ", ".join(f"{n} by '{step}'" for step, n in sorted(late.counts.items())) or "none"
    return [Failure(f"rows dropped as late: expected {wanted}; dropped: {shown}", late.location)]


def compare_outcomes(bound: BoundTest, written: Outcome, other: Outcome, variant: str) -> list[Failure]:
    """What another way of running gives that the test as it is written does not."""
    at, how = bound.test.location, HOW[variant]
    if (written.error is None) != (other.error is None):
        failed = (
            f"fails when it is {how}: {other.error}" if other.error is not None else f"does not fail when it is {how}"
        )
        return [Failure(f"the job {failed}", at, variant)]
    if written.error is not None:
        return []
    tolerances = _tolerances(bound)
    for mine, its in zip(written.looks, other.looks, strict=True):
        for sink in bound.subject.sinks:
            differs = _differs(sink, mine, its, tolerances.get(sink.name, 1e-9))
            if differs is not None:
                where = "at the end" if mine.location is None else f"in line {mine.location.line}"
                message = (
                    f"sink '{sink.name}' has other rows {where} when the pipeline is {how}: - as written, + {variant}"
                )
                return [Failure(message, mine.location or at, variant, differs, sink.location)]
        if dict(mine.late) != dict(its.late):
            counts = f"{dict(mine.late) or 'none'} as written, {dict(its.late) or 'none'} {variant}"
            return [Failure(f"other rows are late when the pipeline is {how}: {counts}", mine.location or at, variant)]
    return []


def _differs(sink: TestedSink, mine: Seen, its: Seen, tolerance: float) -> Difference | None:
    tables: list[Sequence[tuple[object, ...]]] = []
    for seen in (mine, its):
        changes = projected(seen.changes[sink.name], sink.schema, sink.compared)
        tables.append(table_of(changes))
    return difference(sink.compared, tables[0], tables[1], key=sink.key, tolerance=tolerance)


def _tolerances(bound: BoundTest) -> Mapping[str, float]:
    """The largest tolerance that the test has for each sink."""
    found: dict[str, float] = {}
    for expected in all_expected(bound.test):
        found[expected.sink] = max(found.get(expected.sink, 0.0), expected.tolerance)
    return found


def all_expected(test: PipelineTest) -> list[Expected]:
    """Everything that a test expects of sinks, in order."""
    of_steps = (e for a in test.actions if isinstance(a, Look) for e in a.expected)
    return [*of_steps, *test.expected]
