"""The rows of a plan node on Spark, and the names of the columns that users do not see: they begin with `flowrun$`, as no user's do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.functions.spark_text import quoted as quoted  # noqa: PLC0414 - one name for all of this package
from flowrun.spark.piping import Pipe

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EVENT_TIME = "flowrun$time"
"""BIGINT, ms since the epoch, never NULL: the event time of a row, where the node's rows have one."""
ARRIVAL = "flowrun$arrival"
"""Orders rows as they come in the stream; only where a node further down needs it (`flowrun.spark.arrival`).

BIGINT as scans number their rows; ARRAY<BIGINT> below nodes that make several rows of one or send rows in another order.
"""
KIND = "flowrun$kind"
"""TINYINT: the row kind (as in `RecordBatch.row_kinds`), only in frames of changes, which temporal joins and normalisations read."""


class NotNative(Exception):
    """A node or expression has no native form on Spark; says why, for `explain`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@record(eq=False, slots=False)
class SparkFrame:
    """Rows of one node: one column of `data` a column of `schema`, by its name and in its order, then the hidden columns.

    Attributes:
        data: columns have exactly the Spark types of `flowrun.functions.spark_text.spark_type`.
        schema: the node's.
        event_time: whether `EVENT_TIME` is among the columns.
        arrival: whether `ARRIVAL` is.
        made_by: how Python made the rows, as long as `data` is what it gave; see `pipe`.
    """

    data: DataFrame
    schema: Schema
    event_time: bool = False
    arrival: bool = False
    made_by: Pipe | None = None

    @property
    def pipe(self) -> Pipe | None:
        """How Python makes the rows; None: it does not, or something was done to them since."""
        return self.made_by if self.made_by is not None and self.made_by.rows is self.data else None

    @property
    def columns(self) -> tuple[str, ...]:
        """Each column of the schema as Spark SQL text."""
        return tuple(quoted(name) for name in self.schema.names)

    @property
    def hidden(self) -> tuple[str, ...]:
        """The hidden columns, as Spark SQL text."""
        return (*((quoted(EVENT_TIME),) if self.event_time else ()), *((quoted(ARRIVAL),) if self.arrival else ()))

    @property
    def arrival_array(self) -> str:
        """`ARRIVAL` as ARRAY<BIGINT>, as Spark SQL text: what nodes put further places before or behind."""
        from pyspark.sql.types import ArrayType

        known = quoted(ARRIVAL)
        return known if isinstance(self.data.schema[ARRIVAL].dataType, ArrayType) else f"array({known})"

    def project(self, texts: Sequence[str], schema: Schema) -> SparkFrame:
        """The same rows with one column of `schema` a Spark SQL expression; hidden columns stay."""
        return replace(self, data=self.data.selectExpr(*named(texts, schema.names), *self.hidden), schema=schema)

    def where(self, text: str) -> SparkFrame:
        """The rows for which a Spark SQL expression is true."""
        return replace(self, data=self.data.where(text))

    def without_time(self) -> SparkFrame:
        """The same rows without event time."""
        if not self.event_time:
            return self
        return replace(self, data=self.data.drop(EVENT_TIME), event_time=False)

    def with_time(self, text: str) -> SparkFrame:
        """The same rows with a Spark SQL expression (BIGINT, ms) as their event time."""
        plain = self.without_time()
        kept = [*plain.columns, f"{text} AS {quoted(EVENT_TIME)}", *plain.hidden]
        return replace(plain, data=plain.data.selectExpr(*kept), event_time=True)


def named(texts: Iterable[str], names: Iterable[str]) -> list[str]:
    """`SELECT` items that give each Spark SQL text its name.

    >>> named(["1"], ["a"])
    ['1 AS `a`']
    """
    return [f"{text} AS {quoted(name)}" for text, name in zip(texts, names, strict=True)]


def renamed(names: Iterable[str], prefix: str) -> list[str]:
    """`SELECT` items that put a prefix before column names: so that both sides of a join can be told apart.

    >>> renamed(["a"], "l$")
    ['`a` AS `l$a`']
    """
    return [f"{quoted(n)} AS {quoted(prefix + n)}" for n in names]
