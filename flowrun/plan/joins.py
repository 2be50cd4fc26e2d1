"""Nodes of the relational plan that join: two inputs, or one and a table outside that is asked for rows.

Front ends write `Join` by its whole condition, and `TemporalJoin`; `flowrun.plan.recognition` finds the others, which keep less state.
"""

from __future__ import annotations

from flowrun.core.local_time import UTC_ZONE
from flowrun.core.schema import Schema
from flowrun.core.semantics import JoinKind, TimeDomain
from flowrun.plan import description as describe
from flowrun.plan.expressions import Expression
from flowrun.plan.nodes import PlanNode, TableReference


@describe.node()
class _TwoInputs(PlanNode):
    """Columns of the left side, then of the right one where rows of it come out."""

    left: PlanNode = describe.input_node()
    right: PlanNode = describe.input_node()
    kind: JoinKind = describe.parameter()

    @property
    def gives_right(self) -> bool:
        """Whether columns of the right side come out."""
        return not self.kind.left_only


_BOTH_SIDES = (describe.Passed("left"), describe.Passed("right", when="gives_right"))


@describe.node(output=_BOTH_SIDES, keeps_rows=True)
class Join(_TwoInputs):
    """A regular join: every row is remembered (for the state's time to live) and both sides may update.

    Output: left columns, then right columns (SEMI, ANTI: left only); names made unique by the front end.

    Attributes:
        left_keys: positions in the left input, pairwise equal to `right_keys`, of equal types. Front ends may leave both empty and
            write everything into `condition`: recognition infers them.
        null_safe: for each key pair, whether NULL equals NULL (IS NOT DISTINCT FROM); empty: none does.
        condition: what else must hold, over left columns then right columns (also for SEMI and ANTI).
    """

    left_keys: tuple[int, ...] = describe.positions("left", default=())
    right_keys: tuple[int, ...] = describe.positions("right", default=())
    null_safe: tuple[bool, ...] = describe.parameter(default=())
    condition: Expression | None = describe.expressions("left", "right", default=None)

    @property
    def event_time(self) -> bool:
        return False


@describe.node(
    output=_BOTH_SIDES,
    keeps_rows=True,
    final=True,
    inserts_only=describe.InsertsOnly(
        "a window join", hint="join without the windows' bounds: a regular join takes changes", inputs=(0, 1)
    ),
)
class WindowJoin(_TwoInputs):
    """A join of rows of equal windows (and equal keys), emitted as inserts when the window closes, which also forgets them.

    `left_window` and `right_window` are the positions of window start and end. Event time of the output: window_end − 1.
    """

    left_keys: tuple[int, ...] = describe.positions("left")
    right_keys: tuple[int, ...] = describe.positions("right")
    left_window: tuple[int, int] = describe.positions("left")
    right_window: tuple[int, int] = describe.positions("right")
    condition: Expression | None = describe.expressions("left", "right", default=None)
    domain: TimeDomain = describe.clock(default=TimeDomain.EVENT)
    time_zone: str = describe.parameter(default=UTC_ZONE)


@describe.node(
    output=_BOTH_SIDES,
    keeps_rows=True,
    final=True,
    inserts_only=describe.InsertsOnly(
        "an interval join",
        hint="join without a condition on the time attributes: a regular join takes changes",
        inputs=(0, 1),
    ),
)
class IntervalJoin(_TwoInputs):
    """A join of append-only rows with left time + `lower_ms` ≤ right time ≤ left time + `upper_ms` (and equal keys). INNER to FULL.

    Rows are forgotten when nothing can match them any more; outer rows come out then. Event time of the output: the later of the
    two; its watermark is held back so that either side's time attribute stays one.
    """

    left_keys: tuple[int, ...] = describe.positions("left")
    right_keys: tuple[int, ...] = describe.positions("right")
    left_time: int = describe.positions("left")
    right_time: int = describe.positions("right")
    lower_ms: int = describe.parameter()
    upper_ms: int = describe.parameter()
    domain: TimeDomain = describe.clock(default=TimeDomain.EVENT)
    condition: Expression | None = describe.expressions("left", "right", default=None)


@describe.node(
    output=_BOTH_SIDES,
    keeps_rows=True,
    final=True,
    inserts_only=describe.InsertsOnly(
        "the left side of FOR SYSTEM_TIME AS OF", hint="use a regular join, which keeps its results up to date"
    ),
)
class TemporalJoin(_TwoInputs):
    """Each left row with the version of its key on the right as of its time (FOR SYSTEM_TIME AS OF). INNER or LEFT; append-only.

    The right side is a changelog with one current row a key: a table with a primary key, or a deduplicating view. `left_time` and
    `right_time` are time attributes; rows come out when the watermark passes `left_time`. In the processing-time domain
    `right_time` is None and the version is the current one.
    """

    left_keys: tuple[int, ...] = describe.positions("left")
    right_keys: tuple[int, ...] = describe.positions("right")
    left_time: int = describe.positions("left")
    right_time: int | None = describe.positions("right")
    domain: TimeDomain = describe.clock(default=TimeDomain.EVENT)
    condition: Expression | None = describe.expressions("left", "right", default=None)


@describe.node(
    output=(describe.Passed("input"), describe.Each("projections")),
    rows=describe.Rows.REPEATED,
    row_by_row=True,
)
class LookupJoin(PlanNode):
    """Each input row with the rows of an outside table that its connector finds for it now. INNER or LEFT.

    Output: input columns, then `projections`. A row is found where, for each pair of `keys`, the expression over the input row
    equals the table's column (by name); NULL finds nothing.

    Attributes:
        table: as declared; its connector has a `create_lookup`.
        physical: columns asked of the connector.
        projections: the table's columns that are needed, over `physical`.
        condition: what else must hold, over input columns, then projected columns.
        declared: all physical columns of the table, those that are not asked for too; None: `physical` is all.
    """

    input: PlanNode = describe.input_node()
    kind: JoinKind = describe.parameter()
    table: TableReference = describe.parameter()
    physical: Schema = describe.row_schema()
    projections: tuple[Expression, ...] = describe.expressions("physical")
    keys: tuple[tuple[Expression, str], ...] = describe.expressions("input")
    condition: Expression | None = describe.expressions("input", "projections", default=None)
    declared: Schema | None = describe.row_schema(default=None)
