"""What happens to rows that cannot be processed, and the columns of the dead letters that tell of them."""

from __future__ import annotations

from enum import Enum

from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT, STRING


class OnError(Enum):
    """What is done about a row that cannot be decoded, evaluated or written; the value is that of `on_error` in pipelines."""

    FAIL = "fail"
    """The job fails."""
    SKIP = "skip"
    """The row is left out and counted."""
    DEAD_LETTER = "dead-letter"
    """The row is left out, counted, and kept aside as a dead letter."""


class RowFault(Enum):
    """Why a row cannot be processed."""

    DECODING = "decoding"
    """A record is no row of the schema."""
    NULL_TIME = "event time"
    """The event time is NULL, or cannot be computed."""
    NULL_VALUE = "not null"
    """A NOT NULL column is NULL."""
    NULL_KEY = "key"
    """A key is NULL that must not be."""
    EXPRESSION = "expression"
    """An expression fails: overflow, division by zero, a cast."""
    FUNCTION = "function"
    """A user's function raises, or returns what it must not."""
    ENCODING = "sink"
    """A sink cannot write the row."""


@record
class RowErrors:
    """What one operator does about rows that cannot be processed; picklable.

    Attributes:
        place: what messages and dead letters call the operator, e.g. `step 'totals'`.
    """

    mode: OnError = OnError.FAIL
    place: str = ""


FAIL = RowErrors()

DEAD_LETTER_TAG = "dead letters"
"""The side output of operators that dead letters go to; no name that users can give has a space."""

DEAD_LETTER_SCHEMA = Schema(
    (
        Field("place", STRING),
        Field("kind", STRING),
        Field("reason", STRING),
        Field("file", STRING),
        Field("offset", BIGINT),
        Field("text", STRING),
        Field("raw", STRING),
    )
)
"""`place`: source, step or sink; `kind`: value of a `RowFault`; `reason`: what is wrong. `text`: the row as JSON, of a record that cannot
be decoded its text (bytes that are not UTF-8 replaced). Of such a record only: `file`, `offset` (of its first byte in the decompressed
file), `raw` (its bytes as Base64)."""
