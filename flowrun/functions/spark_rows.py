"""The rows that the Spark SQL text of an aggregate is over: of a group or a window frame, with DISTINCT, FILTER, an order, or without."""

from __future__ import annotations

from flowrun.core.record import record

VALUE = "`$value`"
EACH = "`$each`"
"""Names in texts that no column has."""


@record
class SparkRows:
    """The rows that an aggregate's Spark text is over.

    Attributes:
        distinct: equal values count once.
        where: rows for which this condition is not true are left out.
        order: Spark SQL of the columns by which rows are ordered, comma-separated; None: any order will do.
        window: what stands in OVER (…); None: the rows of a group.
    """

    distinct: bool = False
    where: str | None = None
    order: str | None = None
    window: str | None = None

    def call(self, function: str, inner: str, *more: str) -> str:
        """An aggregate function of Spark over these rows; DISTINCT and the condition are the caller's."""
        text = f"{function}({', '.join((inner, *more))})"
        return text if self.window is None else f"{text} OVER ({self.window})"

    def kept(self, value: str) -> str:
        """A value, NULL in rows that are left out."""
        return value if self.where is None else f"CASE WHEN {self.where} THEN {value} END"

    def apply(self, function: str, value: str) -> str:
        """A function of the values that are not NULL, each once if DISTINCT.

        Spark repeats rows once a different argument of DISTINCT: the condition stays out of it.
        """
        if self.distinct and self.where is not None and self.window is None:
            return f"{function}(DISTINCT {value}) FILTER (WHERE {self.where})"
        return self.call(function, f"{'DISTINCT ' * self.distinct}{self.kept(value)}")

    def values(self, value: str, *, nulls: bool = False) -> str:
        """The values as an array, in order, without NULLs unless asked for; each once if DISTINCT."""
        conditions = [c for c in (self.where, None if nulls else f"{value} IS NOT NULL") if c is not None]
        if not nulls and self.order is None:
            listed = self.call("collect_list", self.kept(value))
        else:
            kept = f"struct({self.order + ', ' if self.order else ''}{value} AS {VALUE})"
            if conditions:
                kept = f"CASE WHEN {' AND '.join(conditions)} THEN {kept} END"
            listed = self.call("collect_list", kept)
            listed = f"transform({sorted_array(listed) if self.order else listed}, {EACH} -> {EACH}.{VALUE})"
        return f"array_distinct({listed})" if self.distinct else listed

    @property
    def by_array(self) -> bool:
        """Whether distinct values must be collected: Spark has no DISTINCT in windows."""
        return self.distinct and self.window is not None


def sorted_array(array: str) -> str:
    """The elements in order."""
    return f"array_sort({array})"
