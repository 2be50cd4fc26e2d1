"""The rows of a plan node on Spark, and the names of their hidden columns, which begin with `flowrun$` as no column of a user does."""

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
"""BIGINT, never NULL: the event time of a row in ms since the epoch, if the node's rows have one."""
ARRIVAL = "flowrun$arrival"
"""The order in which rows come in the stream; it is there only if a node downstream needs it (`flowrun.spark.arrival`).

It is a BIGINT as scans number their rows, and an ARRAY<BIGINT> after nodes that make several rows of one or send rows in another order.
"""
KIND = "flowrun$kind"
"""TINYINT: the row kind as in `RecordBatch.row_kinds`. Only frames of changes have it, which temporal joins and normalisations read."""


class NotNative(Exception):
    """A node or expression has no native form on Spark; `reason` says why, for `explain`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@record(eq=False, slots=False)
class SparkFrame:
    """The rows of one node.

    Attributes:
        data: the columns of `schema`, with the same names in the same order, and then the hidden columns. They have exactly the Spark types
            of `flowrun.functions.spark_text.spark_type`.
        schema: the columns of the node.
        event_time: whether `EVENT_TIME` is among the columns.
        arrival: whether `ARRIVAL` is among the columns.
        made_by: how Python made the rows, if nothing was done to `data` since; see `pipe`.
    """

    data: DataFrame
    schema: Schema
    event_time: bool = False
    arrival: bool = False
    made_by: Pipe | None = None

    @property
    def pipe(self) -> Pipe | None:
        """How Python makes the rows; None: it does not, or something was done to the rows since."""
        return self.made_by if self.made_by is not None and self.made_by.rows is self.data else None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the schema, each as Spark SQL text."""
        return tuple(quoted(name) for name in self.schema.names)

    @property
    def hidden(self) -> tuple[str, ...]:
        """The hidden columns, as Spark SQL text."""
        return (*((quoted(EVENT_TIME),) if self.event_time else ()), *((quoted(ARRIVAL),) if self.arrival else ()))

    @property
    def arrival_array(self) -> str:
        """Spark SQL text of `ARRIVAL` as an ARRAY<BIGINT>, to which nodes add elements before or behind."""
        from pyspark.sql.types import ArrayType

        known = quoted(ARRIVAL)
        return known if isinstance(self.data.schema[ARRIVAL].dataType, ArrayType) else f"array({known})"

    def project(self, texts: Sequence[str], schema: Schema) -> SparkFrame:
        """The same rows with a Spark SQL expression for each column of `schema`; hidden columns stay."""
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
        """The same rows with a Spark SQL expression, a BIGINT in ms since the epoch, as their event time."""
        plain = self.without_time()
        kept = [*plain.columns, f"{text} AS {quoted(EVENT_TIME)}", *plain.hidden]
        return replace(plain, data=plain.data.selectExpr(*kept), event_time=True)


def named(texts: Iterable[str], names: Iterable[str]) -> list[str]:
    """Items of a SELECT that give each Spark SQL text its name.

    >>> named(["1"], ["a"])
    ['1 AS `a`']
    """
    return [f"{text} AS {quoted(name)}" for text, name in zip(texts, names, strict=True)]


def renamed(names: Iterable[str], prefix: str) -> list[str]:
    """Items of a SELECT that put a prefix before column names, so that the columns of both sides of a join differ.

    >>> renamed(["a"], "l$")
    ['`a` AS `l$a`']
    """
    return [f"{quoted(n)} AS {quoted(prefix + n)}" for n in names]
