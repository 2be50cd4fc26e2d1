"""Specs of the operators that make rows of each row: for its elements, its windows, its functions, its changes."""

from __future__ import annotations

from enum import Enum

from flowrun.api.functions import ColumnsFunction
from flowrun.api.operator import OperatorSpec
from flowrun.core.local_time import UTC_ZONE
from flowrun.core.record import record
from flowrun.core.row_errors import FAIL, RowErrors
from flowrun.core.schema import Schema
from flowrun.operators.timed.assigners import AlignedSlices


@record
class AssignTimeFactory(OperatorSpec):
    """Operators that take the TIMESTAMP or TIMESTAMP_LTZ column at `column` for the event time of rows; watermarks stay."""

    column: int
    name: str = "time"


@record
class WatermarkColumnFactory(OperatorSpec):
    """Operators that put a BIGINT column behind the others: the watermark that was there when the row came, ms.

    It must be that of the operator that sends the rows, so it joins any chain.

    Attributes:
        schema: of the rows that are sent.
    """

    schema: Schema


@record
class ExpandFactory(OperatorSpec):
    """Operators that send a batch once for each of `projections`, in that order: all rows of one, then all of the next.

    So the two halves of an update stay side by side. Rows keep their event times and kinds.
    """

    projections: tuple[ColumnsFunction, ...]
    name: str = "expand"

    uses_event_time = False


class Collection(Enum):
    """What is unnested: an ARRAY gives its elements, a MAP its keys and values, a MULTISET (element → count) repeated elements."""

    ARRAY = "array"
    MAP = "map"
    MULTISET = "multiset"


@record
class UnnestFactory(OperatorSpec):
    """Operators that put each element of the collection at `column` beside its row.

    Attributes:
        output_schema: the input's columns, then the element's: the fields of a ROW, a map's key and value, or the element alone.
        outer: a row whose collection is NULL or empty stays, with NULLs.
        ordinality: the element's place from 1 (INT) is the last column.
        keeps_collection: the collection comes out beside its elements, else NULL in its place.
    """

    column: int
    collection: Collection
    output_schema: Schema
    outer: bool = False
    ordinality: bool = False
    keeps_collection: bool = True

    uses_event_time = False


@record
class TableFunctionFactory(OperatorSpec):
    """Operators that put the rows of the function `reference` (`module:name`) behind those that they were made for.

    Attributes:
        arguments: the columns that it is called with.
        columns: of its rows; they follow the input's in `output_schema`.
        outer: rows for which it gives nothing stay, with NULLs.
        search_path: folders to import from before Python's own path.
        errors: what becomes of rows of which the function raises; to find them it is called again on parts of a batch.
    """

    reference: str
    arguments: ColumnsFunction
    columns: Schema
    output_schema: Schema
    outer: bool = False
    name: str = "table function"
    search_path: tuple[str, ...] = ()
    errors: RowErrors = FAIL

    uses_event_time = False


@record
class WindowFunctionFactory(OperatorSpec):
    """Operators that put window_start, window_end and window_time (window_end − 1 ms) behind the columns of rows.

    Rows keep their event times and kinds; none is late here, as windows decide that where they close.

    Attributes:
        time: position of the column by whose value windows are assigned; None: by the clock when the rows come.
        output_schema: the input's columns, then the three.
        time_zone: whose clocks the windows go by; window_time is then the last instant of the window.
    """

    assigner: AlignedSlices
    time: int | None
    output_schema: Schema
    name: str = "window"
    time_zone: str = UTC_ZONE


@record
class ToChangelogFactory(OperatorSpec):
    """Operators that send every change as an insert, with the text of its kind in a column behind the others.

    Attributes:
        schema: of the rows that are sent.
        codes: the text of each kind; changes of other kinds are dropped.
    """

    schema: Schema
    codes: tuple[tuple[str, int], ...]

    uses_event_time = False


@record
class FromChangelogFactory(OperatorSpec):
    """Operators that send every row as the change that the text in one of its columns says.

    Two rows that stand side by side and are an update's before and after stay a pair; the halves of an update that come apart are sent
    as a delete and an insert, as nothing downstream may see half an update.

    Attributes:
        schema: of the rows that are sent.
        operation: position of the column with the text.
        codes: the kind that each text stands for.
        skip: whether rows with another text, or NULL, are left out; else they fail the job.
        name: of the step, for messages.
        upsert: rows after updates come without those before.
    """

    schema: Schema
    operation: int
    codes: tuple[tuple[str, int], ...]
    skip: bool
    name: str
    upsert: bool = False

    uses_event_time = False
