"""Schemas: ordered, named, typed columns of a stream or table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import pyarrow as pa

from flowrun.core.record import record
from flowrun.core.types import DataType, from_arrow


@record
class Field:
    """One column: name, type and whether NULL may occur (always enforced at sources and sinks, never assumed inside)."""

    name: str
    type: DataType
    nullable: bool = True

    def __str__(self) -> str:
        return f"{self.name} {self.type}" + ("" if self.nullable else " NOT NULL")


@record(slots=False)
class Schema:
    """An ordered tuple of fields with unique names.

    Raises:
        ValueError: two fields have one name.
    """

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.fields):
            twice = sorted({n for n in self.names if self.names.count(n) > 1})
            raise ValueError(f"column {', '.join(twice)} occurs more than once")

    @classmethod
    def of(cls, **columns: DataType) -> Schema:
        """A schema from keyword arguments, in order.

        >>> from flowrun.core.types import BIGINT
        >>> str(Schema.of(id=BIGINT))
        'id BIGINT'
        """
        return cls(tuple(Field(n, t) for n, t in columns.items()))

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[str, DataType]]) -> Schema:
        """A schema from (name, type) pairs."""
        return cls(tuple(Field(n, t) for n, t in pairs))

    @classmethod
    def from_arrow(cls, schema: pa.Schema) -> Schema:
        """The schema that an Arrow schema stands for."""
        return cls(tuple(Field(f.name, from_arrow(f.type), f.nullable) for f in schema))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Column names in order."""
        return tuple(f.name for f in self.fields)

    @cached_property
    def types(self) -> tuple[DataType, ...]:
        """Column types in order."""
        return tuple(f.type for f in self.fields)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of a batch (every Arrow field is nullable; NOT NULL is checked where rows enter and leave)."""
        return pa.schema([pa.field(f.name, f.type.arrow) for f in self.fields])

    def __len__(self) -> int:
        return len(self.fields)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __str__(self) -> str:
        return ", ".join(str(f) for f in self.fields)

    def index(self, name: str) -> int:
        """Position of a column. Raises KeyError if there is none."""
        try:
            return self.names.index(name)
        except ValueError:
            raise KeyError(name) from None

    def field(self, name: str) -> Field:
        """The field of a column. Raises KeyError if there is none."""
        return self.fields[self.index(name)]

    def select(self, names: Iterable[str]) -> Schema:
        """The named columns, in the given order. Raises KeyError for a missing one."""
        return Schema(tuple(self.field(n) for n in names))
