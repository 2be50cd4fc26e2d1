"""What the columns of a sink's table may hold, and what is done with what they may not, as the settings of a job say.

After Apache Flink's options `table.exec.sink.not-null-enforcer`, `…nested-constraint-enforcer` and `…type-length-enforcer`.
"""

from __future__ import annotations

from enum import Enum

from flowrun.core.record import record
from flowrun.core.types import DataType, TypeRoot


class NotNull(Enum):
    """What happens to a row with NULL in a NOT NULL column."""

    ERROR = "error"
    DROP = "drop"


class Nested(Enum):
    """Where constraints are enforced inside of values: nowhere, in ROWs, or in ROWs, ARRAYs and MAPs."""

    IGNORE = "ignore"
    ROWS = "rows"
    ROWS_AND_COLLECTIONS = "rows_and_collections"


class Lengths(Enum):
    """What happens to values of CHAR(n), VARCHAR(n), BINARY(n) and VARBINARY(n) that have another length."""

    IGNORE = "ignore"
    TRIM_PAD = "trim_pad"
    ERROR = "error"


@record
class SinkConstraints:
    """How the constraints of sinks are enforced; the defaults are Flink's."""

    not_null: NotNull = NotNull.ERROR
    nested: Nested = Nested.IGNORE
    lengths: Lengths = Lengths.IGNORE

    def looks_into(self, type: DataType) -> bool:
        """Whether the values inside of a nested value are looked at."""
        if type.root is TypeRoot.ROW:
            return self.nested is not Nested.IGNORE
        return bool(type.children) and self.nested is Nested.ROWS_AND_COLLECTIONS


def is_limited(type: DataType) -> bool:
    """Whether the type says how long its values are."""
    sized = type.root in (TypeRoot.CHAR, TypeRoot.VARCHAR, TypeRoot.BINARY, TypeRoot.VARBINARY)
    return sized and type.length is not None


def is_fixed(type: DataType) -> bool:
    """Whether values of the type have exactly its length."""
    return type.root in (TypeRoot.CHAR, TypeRoot.BINARY)


def null_problem(place: str, name: str, row: str = "a row") -> tuple[str, str]:
    """(message, hint) for a NULL that may not be."""
    return (
        f"{place}: column '{name}' is NOT NULL, but {row} has no value",
        f"drop such rows with a filter ({name} IS NOT NULL), give them a value (COALESCE), or declare the column without NOT NULL; "
        "'table.exec.sink.not-null-enforcer' = 'DROP' (in YAML not_null_enforcer: drop) drops them",
    )


def length_problem(place: str, name: str, type: DataType, row: str = "a row") -> tuple[str, str]:
    """(message, hint) for a value whose length is not that of its column."""
    return (
        f"{place}: column '{name}' is {type}, but {row} has a value of another length",
        "'table.exec.sink.type-length-enforcer' = 'TRIM_PAD' (in YAML type_length_enforcer: trim_pad) cuts and fills up such values",
    )
