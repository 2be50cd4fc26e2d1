"""MATCH_RECOGNIZE in the plan: a row pattern over each partition in order of time, and the expressions that speak of its variables.

Semantics are Apache Flink's: ONE ROW PER MATCH, patterns without alternation, PREV and NEXT only inside DEFINE.
"""

from __future__ import annotations

from enum import Enum

from flowrun.core.record import record
from flowrun.core.semantics import SortKey, TimeDomain
from flowrun.plan import description as describe
from flowrun.plan.expressions import AggregateCall, Expression
from flowrun.plan.nodes import PlanNode


@record
class PatternVariable:
    """One variable of a pattern and how many consecutive rows it takes: `least` to `most` (None: any number)."""

    name: str
    least: int = 1
    most: int | None = 1
    greedy: bool = True


class Navigation(Enum):
    """From where a row of a variable is counted: its first or last row so far, or rows before the current one."""

    FIRST = "FIRST"
    LAST = "LAST"
    PREV = "PREV"
    NEXT = "NEXT"


@describe.part
class PatternColumn(Expression):
    """A column of one matched row; NULL if there is no such row.

    Attributes:
        index: column of the input.
        variable: whose rows are meant; None: those of all variables.
        navigation: `A.x` alone is LAST with offset 0.
        offset: rows forward from the first, or back from the last or current one.
    """

    index: int = describe.positions()
    name: str = describe.label(compare=False)
    variable: str | None = describe.parameter()
    navigation: Navigation = describe.parameter(default=Navigation.LAST)
    offset: int = describe.parameter(default=0)

    def __str__(self) -> str:
        column = f"{self.variable}.{self.name}" if self.variable else self.name
        return (
            column
            if self.navigation is Navigation.LAST and not self.offset
            else f"{self.navigation.value}({column}, {self.offset})"
        )


@describe.part
class PatternAggregate(Expression):
    """An aggregate over the rows matched by a variable (None: by any) so far; its arguments read the row as `ColumnRef`s."""

    call: AggregateCall = describe.parts()
    variable: str | None = describe.parameter()

    def __str__(self) -> str:
        return f"{self.call} OF {self.variable or '*'}"


class AfterMatch(Enum):
    """Where the search goes on after a match."""

    SKIP_PAST_LAST_ROW = "SKIP PAST LAST ROW"
    SKIP_TO_NEXT_ROW = "SKIP TO NEXT ROW"
    SKIP_TO_FIRST = "SKIP TO FIRST"
    SKIP_TO_LAST = "SKIP TO LAST"


@describe.node(
    output=(describe.Taken("partition"), describe.Added()),
    keeps_rows=True,
    final=True,
    inserts_only=describe.InsertsOnly("MATCH_RECOGNIZE", hint="match before the rows are aggregated or joined"),
)
class MatchRecognize(PlanNode):
    """One row a match: partition columns, then measures.

    Attributes:
        partition: positions of the partition columns; may be empty.
        order: first a time attribute ascending, then any.
        measures: one expression a measure column, of `PatternColumn`s and `PatternAggregate`s.
        skip_to: the variable of SKIP TO FIRST and LAST.
        within_ms: last row's time − first row's time must be less.
        defines: condition of each variable, over the current row and those matched so far; a variable without one takes any row.
    """

    input: PlanNode = describe.input_node()
    partition: tuple[int, ...] = describe.positions("input", groups=True)
    order: tuple[SortKey, ...] = describe.parts("input")
    pattern: tuple[PatternVariable, ...] = describe.parameter()
    defines: tuple[tuple[str, Expression], ...] = describe.pattern_expressions("input")
    measures: tuple[Expression, ...] = describe.pattern_expressions("input")
    after: AfterMatch = describe.parameter(default=AfterMatch.SKIP_PAST_LAST_ROW)
    skip_to: str | None = describe.parameter(default=None)
    within_ms: int | None = describe.parameter(default=None)
    domain: TimeDomain = describe.clock(default=TimeDomain.EVENT)
