"""The `datagen` connector: rows of random and sequential values, under Apache Flink's option names.

Two things are not in Flink: the option `seed` (the same seed gives the same rows at any parallelism), and a nominal clock, the start of
the job + row number ÷ `rows-per-second`, which makes timestamps reproducible too.
"""

from __future__ import annotations

import pyarrow as pa

from flowrun.api.connector import Connector, TableDefinition
from flowrun.api.source import Delivery
from flowrun.connectors.generated import GeneratedSource, RowGenerator
from flowrun.connectors.random_columns import INTEGER_BITS, ColumnGenerator, SequenceColumn, random_column
from flowrun.core.options import Option, Options, OptionType
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import OptionError

_SEQUENCE_ROOTS = frozenset(
    {
        TypeRoot.TINYINT,
        TypeRoot.SMALLINT,
        TypeRoot.INTEGER,
        TypeRoot.BIGINT,
        TypeRoot.FLOAT,
        TypeRoot.DOUBLE,
        TypeRoot.DECIMAL,
        TypeRoot.VARCHAR,
        TypeRoot.CHAR,
    }
)

OPTIONS = (
    Option("rows-per-second", OptionType.INT, "Rows a second of the whole job.", default=10_000, minimum=1),
    Option("number-of-rows", OptionType.INT, "Rows in all; without it the source never ends.", minimum=0),
    Option("seed", OptionType.INT, "The same seed gives the same rows.", default=1),
    Option(
        "fields.#.kind",
        OptionType.ENUM,
        "How a column's values come: `random`, or a `sequence` from `start` to `end`.",
        choices=("random", "sequence"),
    ),
    Option("fields.#.min", OptionType.FLOAT, "Smallest random number."),
    Option("fields.#.max", OptionType.FLOAT, "Largest random number."),
    Option("fields.#.max-past", OptionType.DURATION, "How far random timestamps lie in the past at most.", minimum=0),
    Option("fields.#.length", OptionType.INT, "Length of random strings, bytes, arrays and maps.", minimum=0),
    Option("fields.#.var-len", OptionType.BOOLEAN, "Random lengths from 1 to `length`."),
    Option("fields.#.null-rate", OptionType.FLOAT, "Share of NULLs, 0 to 1.", minimum=0),
    Option("fields.#.start", OptionType.INT, "First value of a sequence."),
    Option("fields.#.end", OptionType.INT, "Last value of a sequence; the source ends after it."),
)


@record
class _Rows:
    """The recipe of the rows: one `ColumnGenerator` for each column."""

    schema: Schema
    columns: tuple[ColumnGenerator, ...]
    rows_per_second: int
    max_past_ms: int = 0
    """How far behind the nominal clock a timestamp may lie."""

    def create(self, origin_ms: int) -> RowGenerator:
        return _RowMaker(self, origin_ms)


class _RowMaker:
    def __init__(self, recipe: _Rows, origin_ms: int) -> None:
        self._recipe = recipe
        self._origin_ms = origin_ms

    def rows(self, start: int, count: int) -> pa.RecordBatch:
        """Rows `start` … `start + count − 1`."""
        arrays = [c.values(start, count, self._origin_ms, self._recipe.rows_per_second) for c in self._recipe.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._recipe.schema.arrow)

    def watermark(self, row: int) -> int:
        """1 ms before the earliest time that a timestamp from `row` on may have."""
        return self._origin_ms + row * 1000 // self._recipe.rows_per_second - self._recipe.max_past_ms - 1


def _create_source(table: TableDefinition) -> GeneratedSource:
    known = set(table.schema.names)
    declared = _top_level_names(table.options)
    for name in sorted(declared - known - set(table.declared.names if table.declared else ())):
        raise OptionError(f"fields.{name}", f"datagen: option 'fields.{name}' names no column of '{table.name}'")
    seed = table.options.integer("seed")
    rate = table.options.integer("rows-per-second")
    full = table.declared or table.schema
    columns: dict[str, ColumnGenerator] = {}
    limits = [table.options.integer("number-of-rows")] if table.options.get("number-of-rows") is not None else []
    for position, field in enumerate(full):
        # Pruned columns still count: a sequence's end bounds the source, and streams of numbers stay the same.
        column = _column(f"fields.{field.name}", field.type, table.options, seed, position + 1)
        if isinstance(column, SequenceColumn) and column.length is not None:
            limits.append(column.length)
        columns[field.name] = column
    rows = _Rows(table.schema, tuple(columns[n] for n in table.schema.names), rate, _longest_past_ms(table.options))
    return GeneratedSource(rows, min(limits) if limits else None, rate, table.source_watermarks)


def _longest_past_ms(options: Options) -> int:
    given = (v for k, v in options.under("fields").items() if k.endswith(".max-past") and v is not None)
    return max((int(v) for v in given), default=0)


def _top_level_names(options: Options) -> set[str]:
    return {key.split(".")[0] for key, value in options.under("fields").items() if value is not None}


def _column(prefix: str, kind: DataType, options: Options, seed: int, stream: int) -> ColumnGenerator:
    is_sequence = options.get(f"{prefix}.kind") == "sequence"
    misplaced = ("min", "max", "length", "max-past", "var-len") if is_sequence else ("start", "end")
    for name in misplaced:
        if options.get(f"{prefix}.{name}") is not None:
            wanted = "random" if is_sequence else "sequence"
            raise OptionError(f"{prefix}.{name}", f"datagen: option '{prefix}.{name}' is for {wanted} columns only")
    if not is_sequence:
        return random_column(prefix, kind, options, seed, stream)
    if kind.root not in _SEQUENCE_ROOTS:
        raise OptionError(f"{prefix}.kind", f"datagen: column of type {kind} ({prefix}) cannot be a sequence")
    start = options.get(f"{prefix}.start")
    end = options.get(f"{prefix}.end")
    first = 0 if start is None else int(start)
    if end is not None and int(end) < first:
        raise OptionError(f"{prefix}.end", f"datagen: '{prefix}.end' ({end}) lies before '{prefix}.start' ({first})")
    largest = None if kind.root not in INTEGER_BITS else (1 << (INTEGER_BITS[kind.root] - 1)) - 1
    for name, value in (("start", first), ("end", first if end is None else int(end))):
        if largest is not None and not -largest - 1 <= value <= largest:
            raise OptionError(f"{prefix}.{name}", f"datagen: '{prefix}.{name}' ({value}) does not fit {kind}")
    return SequenceColumn(kind, first, None if end is None else int(end) - first + 1)


CONNECTOR = Connector(
    name="datagen",
    summary="Random and sequential rows, seedable, at a given rate.",
    source_options=OPTIONS,
    create_source=_create_source,
    source_delivery=Delivery.EXACTLY_ONCE,
    source_watermarks=True,
    notes="Columns are random unless `fields.<column>.kind` is `sequence`; nested columns are named `fields.<row>.<field>`. Its own "
    "watermarks are those of timestamps that it makes: the nominal clock less the longest `max-past`.",
)
