"""The rows that are in a table when its changes begin, in the order of its primary key."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.csv as pa_csv

from flowrun.connectors.jdbc.postgres.texts import identifier, literal
from flowrun.connectors.postgres_cdc.database import CapturedTable, session
from flowrun.connectors.postgres_cdc.rows import typed_rows
from flowrun.core.schema import Schema

_BLOCK_BYTES = 1 << 20


def read_snapshot(
    table: CapturedTable, schema: Schema, keys: Sequence[str], after: Sequence[str] | None, snapshot: str | None
) -> Iterator[tuple[pa.RecordBatch, tuple[str, ...]]]:
    """The rows behind a key: batches of about a MiB, each with the key of its last row.

    Args:
        table: to read.
        schema: the columns wanted.
        keys: the columns of the primary key.
        after: the texts of a key; None: from the first row on.
        snapshot: as another connection has exported it; None: as the rows are now.

    Raises:
        ConnectorError: the server fails, or a column is not there.
        DataError: a value is not of the declared type.
    """
    named = [*schema.names, *keys]
    wanted = ", ".join(map(identifier, named))
    order = ", ".join(identifier(k) for k in keys)
    condition = ""
    if after is not None:
        condition = f" WHERE ({order}) > ({', '.join(map(literal, after))})"
    query = (
        f"COPY (SELECT {wanted} FROM {table.name}{condition} ORDER BY {order}) TO STDOUT (FORMAT csv, FORCE_QUOTE *)"
    )
    with session(table) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if snapshot is not None:
            connection.execute(f"SET TRANSACTION SNAPSHOT {literal(snapshot)}")
        with connection.cursor() as cursor, cursor.copy(query) as copy:
            waiting: list[bytes] = []
            size = 0
            for line in copy:  # psycopg gives whole lines of COPY, some at a time
                waiting.append(bytes(line))
                size += len(line)
                if size >= _BLOCK_BYTES:
                    yield _batch(b"".join(waiting), named, schema, len(keys), table)
                    waiting, size = [], 0
            if waiting:
                yield _batch(b"".join(waiting), named, schema, len(keys), table)
        connection.execute("COMMIT")


def _batch(
    data: bytes, named: Sequence[str], schema: Schema, keys: int, table: CapturedTable
) -> tuple[pa.RecordBatch, tuple[str, ...]]:
    names = [str(i) for i in range(len(named))]
    texts = pa_csv.read_csv(
        io.BytesIO(data),
        read_options=pa_csv.ReadOptions(column_names=names, use_threads=False, block_size=max(len(data), 1)),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        ),
    ).combine_chunks()
    columns = [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in texts.columns]
    last = tuple(c[len(c) - 1].as_py() for c in columns[len(columns) - keys :])
    return typed_rows(schema, columns[: len(columns) - keys], table.name), last
