"""What happens to rows that cannot be processed, and the columns of the dead letters that tell of them."""

from __future__ import annotations

from enum import Enum

from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT, BYTES, INT, STRING, timestamp_ltz


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
class LetterOrigin:
    """Where dead letters come from, beside the place; None: not known, or there is none.

    Attributes:
        pipeline: its name.
        version: the fingerprint of its text.
        source: the source's name, if a source cannot read a record or a row of it is wrong.
        format: of its records.
    """

    pipeline: str | None = None
    version: str | None = None
    source: str | None = None
    format: str | None = None


@record
class LetterLimit:
    """How many records of a source each of its subtasks may put aside; None: any number.

    Attributes:
        records: so many.
        percent: so many of a hundred that it has read.
    """

    records: int | None = None
    percent: float | None = None


@record
class RowErrors:
    """What one operator does about rows that cannot be processed; picklable.

    Attributes:
        place: what messages and dead letters call the operator, e.g. `step 'totals'`.
        origin: what else dead letters say of where they come from.
    """

    mode: OnError = OnError.FAIL
    place: str = ""
    origin: LetterOrigin = LetterOrigin()


FAIL = RowErrors()

DEAD_LETTER_TAG = "dead letters"
"""The side output of operators that dead letters go to; no name that users can give has a space."""

DEAD_LETTER_SCHEMA = Schema(
    (
        Field("id", STRING),
        Field("time", timestamp_ltz(3)),
        Field("pipeline", STRING),
        Field("version", STRING),
        Field("job", STRING),
        Field("place", STRING),
        Field("source", STRING),
        Field("kind", STRING),
        Field("reason", STRING),
        Field("format", STRING),
        Field("file", STRING),
        Field("offset", BIGINT),
        Field("topic", STRING),
        Field("partition", INT),
        Field("timestamp", timestamp_ltz(3)),
        Field("key", BYTES),
        Field("headers", STRING),
        Field("text", STRING),
        Field("raw", BYTES),
    )
)
"""The columns of dead letters, in the order in which they are documented (docs/dead-letters.md).

`id`: 32 hex digits, the same for the same record of the same place; `time`: processing time; `pipeline`, `version`, `source`, `format`: see
`LetterOrigin`; `job`: the run of the job (NULL on Spark); `place`: source, step or sink; `kind`: value of a `RowFault`; `reason`: what is
wrong. `text`: the row as JSON, of a record that cannot be decoded the beginning of its text (bytes that are not UTF-8 replaced). Of such a
record only: `file` (of a message `topic/partition`), `offset` (of its first byte in the decompressed file, or of the message), `raw` (its
bytes), and of a message `topic`, `partition`, `timestamp`, `key` and `headers` (JSON: `[["name", "value as Base64" or null], …]`)."""

LETTER_COLUMNS_OF_A_RUN = ("time", "job")
"""Those of them that differ from run to run."""
