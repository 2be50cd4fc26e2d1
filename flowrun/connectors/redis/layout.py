"""Where the rows of a table go in Redis: under which key, and as what."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.connector import TableDefinition
from flowrun.api.format import RecordFormat
from flowrun.connectors.formats.registry import record_format_named
from flowrun.connectors.formats.text_values import is_textual
from flowrun.connectors.formats.value_text import value_text
from flowrun.connectors.redis.commands import as_binary
from flowrun.core.options import Option, Options, OptionType
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.types import TypeRoot
from flowrun.errors import DataError, OptionError


class RedisType(Enum):
    """The types of values that rows can be."""

    STRING = "string"
    HASH = "hash"
    LIST = "list"
    SET = "set"
    STREAM = "stream"

    @property
    def is_keyed(self) -> bool:
        """Whether each row has a Redis key of its own, by the table's PRIMARY KEY; else all rows go under one key."""
        return self in (RedisType.STRING, RedisType.HASH)


LAYOUT_OPTIONS = (
    Option(
        "type",
        OptionType.ENUM,
        "What rows are in Redis. `string` and `hash`: a value for each PRIMARY KEY, which is replaced and deleted with its row; "
        "`list`, `set` and `stream`: one value for all rows, named by `key`, to which rows are added.",
        default="string",
        choices=tuple(t.value for t in RedisType),
    ),
    Option("key", OptionType.STRING, "With `list`, `set` and `stream`: the name of the value."),
    Option(
        "key.prefix",
        OptionType.STRING,
        "With `string` and `hash`: what the name of each value begins with.",
        default="",
    ),
    Option(
        "key.separator",
        OptionType.STRING,
        "Stands between the columns of a PRIMARY KEY in the name of a value.",
        default=":",
    ),
)


@record
class RedisLayout:
    """How rows are stored.

    Attributes:
        type: of the values.
        key: the name of the one value, for types that have one.
        prefix: of names of values.
        separator: between key columns in names.
        keys: the columns of the key; none for types with one value.
        values: the other columns, or all.
        format: name of the format of strings and of members of lists and sets; None: `values` is one column of text or bytes, or fields.
        options: of the format.
    """

    type: RedisType
    key: str
    prefix: str
    separator: str
    keys: Schema
    values: Schema
    format: str | None
    options: Options

    def names(self, keys: Sequence[pa.Array]) -> pa.Array:
        """The names of the values of rows, binary; NULL where a part of the key is.

        Args:
            keys: the key columns, in the order of `keys`.

        Raises:
            DataError: a key column has the separator in a value, so that two keys could have one name.
        """
        texts: list[pa.Array] = []
        for field, column in zip(self.keys, keys, strict=True):
            text = column if field.type.is_binary else as_binary(value_text(column, field.type))
            if len(self.keys) > 1 and self.separator:
                clashes = pc.fill_null(pc.match_substring(text, self.separator), False)
                if pc.any(clashes).as_py():
                    row = clashes.index(True).as_py()
                    raise DataError(
                        f"key column '{field.name}' has the key separator '{self.separator}' in the value {column[row].as_py()!r}",
                        row=row,
                        hint="choose another 'key.separator'",
                    )
            texts.append(text)
        joined = pc.binary_join_element_wise(*texts, pa.scalar(self.separator.encode(), pa.binary()))
        prefix = pa.scalar(self.prefix.encode(), pa.binary())
        return pc.binary_join_element_wise(prefix, joined, pa.scalar(b"", pa.binary()))

    @property
    def record_format(self) -> RecordFormat | None:
        """The format that makes bytes of `values`."""
        return None if self.format is None else record_format_named(self.format, "connector 'redis'")

    def payloads(self, rows: pa.RecordBatch, encoder: Any) -> pa.Array:
        """One payload a row, binary: of the encoder of the format, or the one column as it is (NULL: an empty text)."""
        found = rows.column(0) if encoder is None else encoder.encode_messages(rows)
        return pc.fill_null(as_binary(found), pa.scalar(b"", pa.binary()))

    def fields(self, rows: pa.RecordBatch) -> list[tuple[bytes, pa.Array]]:
        """The columns as fields of a hash or stream: name and text of each, binary."""
        found = []
        for field, column in zip(self.values, rows.columns, strict=True):
            text = column if field.type.is_binary else value_text(column, field.type)
            found.append((field.name.encode(), as_binary(text)))
        return found


def layout_of(table: TableDefinition, keys: Sequence[str], columns: Schema) -> RedisLayout:
    """The layout that a table's options describe.

    Args:
        table: with its options.
        keys: the columns of the key.
        columns: of the table, the key's included.

    Raises:
        OptionError: options do not go together, or a column has a type that cannot be stored so.
    """
    options = table.options
    kind = RedisType(options.text("type"))
    key = str(options.get("key") or "")
    if kind.is_keyed and not keys:
        raise OptionError(
            "type",
            f"'{table.name}' needs a PRIMARY KEY: 'type' = '{kind.value}' stores a value for each key",
            hint="declare PRIMARY KEY (…) NOT ENFORCED, or use 'list', 'set' or 'stream'",
        )
    if not kind.is_keyed and not key:
        raise OptionError("key", f"'type' = '{kind.value}' needs 'key', the name of the value that rows are added to")
    if kind.is_keyed and key:
        raise OptionError("key", f"'key' is for lists, sets and streams, not for 'type' = '{kind.value}'")
    own = tuple(keys) if kind.is_keyed else ()
    values = columns.select(n for n in columns.names if n not in own)
    if not values.fields:
        raise OptionError("type", f"all columns of '{table.name}' are in its key: there is nothing to store")
    for field in (*columns.select(own), *(values if kind in (RedisType.HASH, RedisType.STREAM) else ())):
        if field.type.root is not TypeRoot.VARBINARY and not is_textual(field.type):
            raise OptionError(
                "type",
                f"column '{field.name}' is {field.type}, which is no key and no field",
                hint="use 'type' = 'string' with a format such as json",
            )
    fielded = kind in (RedisType.HASH, RedisType.STREAM)
    if fielded and table.format is not None:
        raise OptionError("format", f"'type' = '{kind.value}' stores columns as fields: it takes no format")
    if not fielded and table.format is None and not _is_text(values):
        raise OptionError(
            "format",
            f"'type' = '{kind.value}' needs option 'format' to store more than one column of text or bytes",
            hint="for example json",
        )
    prefix, separator = str(options.get("key.prefix") or ""), str(options.get("key.separator") or "")
    layout = RedisLayout(kind, key, prefix, separator, columns.select(own), values, table.format, options)
    used = layout.record_format
    if used is not None:
        used.check(values, options)
    return layout


def _is_text(values: Schema) -> bool:
    """Whether they are one column of text or bytes, which needs no format."""
    kinds = values.types
    return len(kinds) == 1 and (kinds[0].is_character or kinds[0].is_binary)
