"""The two sides of a join on Spark: their columns have different prefixes, and conditions are over both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.semantics import JoinKind
from flowrun.plan.expressions import Expression
from flowrun.spark.expressions import spark_text
from flowrun.spark.frame import SparkFrame, named, quoted, renamed

LEFT, RIGHT = "l$", "r$"

HOW = {
    JoinKind.INNER: "inner",
    JoinKind.LEFT: "left",
    JoinKind.RIGHT: "right",
    JoinKind.FULL: "full",
    JoinKind.SEMI: "left_semi",
    JoinKind.ANTI: "left_anti",
}
"""Kind of a join → its name in Spark."""


@record
class Side:
    """One side: its frame, and the text of its columns once their names have the side's prefix."""

    frame: SparkFrame
    prefix: str

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the schema, as Spark SQL text."""
        return tuple(quoted(self.prefix + name) for name in self.frame.schema.names)

    def selected(self, *more: str) -> list[str]:
        """Items of a SELECT that give the columns, and `more` items."""
        return [*renamed(self.frame.schema.names, self.prefix), *more]


def sides(frames: Sequence[SparkFrame]) -> tuple[Side, Side]:
    """The left and the right side."""
    left, right = frames
    return Side(left, LEFT), Side(right, RIGHT)


def equalities(
    left: Side, right: Side, left_keys: Iterable[int], right_keys: Iterable[int], null_safe: Sequence[bool] = ()
) -> list[str]:
    """A condition for each pair of keys."""
    pairs = list(zip(left_keys, right_keys, strict=True))
    safe = null_safe or (False,) * len(pairs)
    return [
        f"{left.columns[a]} {'<=>' if equal_nulls else '='} {right.columns[b]}"
        for (a, b), equal_nulls in zip(pairs, safe, strict=True)
    ]


def residual(condition: Expression | None, left: Side, right: Side) -> list[str]:
    """The further condition of a join, over the columns of the left and then of the right side."""
    return [] if condition is None else [f"({spark_text(condition, (*left.columns, *right.columns))})"]


def output_columns(left: Side, right: Side, kind: JoinKind, schema: Schema) -> list[str]:
    """Items of a SELECT that give the columns of the join under the names of its schema."""
    columns = left.columns if kind.left_only else (*left.columns, *right.columns)
    return named(columns, schema.names)


def all_of(conditions: Sequence[str]) -> str:
    """Spark SQL that is true if all conditions are."""
    return " AND ".join(conditions) if conditions else "true"
