"""Fits the columns of a file that has an Arrow schema to those of a table: by name, with types that may differ a little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from flowrun.api.format import FilePart, FileRows
from flowrun.connectors.formats.arrow_fit import Fit, MisfitError, fit_column, needed_leaves
from flowrun.connectors.formats.records import batch_of
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import DataError


@record
class FileColumns:
    """How the columns of one file become those of a table. Columns that the file does not have are NULL.

    Attributes:
        schema: the columns of the table.
        names: those of them that the file has.
        leaves: the dotted paths that are read for them: of a ROW only the fields that are wanted.
        fits: what converts each of them; None: it is as it should be.
    """

    schema: Schema
    names: list[str]
    leaves: list[str]
    fits: list[Fit | None]

    def fitted(self, batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
        """Rows of the file as rows of the table.

        Raises:
            DataError: a value does not fit; the message names the file and the column.
        """
        by_name: dict[str, pa.Array] = {}
        for column, fit in zip(self.names, self.fits, strict=True):
            values = batch.column(column)
            try:
                by_name[column] = values if fit is None else fit(values)
            except pa.ArrowException as error:
                kind = self.schema.field(column).type
                raise DataError(f"{name}: column '{column}' holds a value that is no {kind}: {error}") from error
        rows = batch.num_rows
        arrays = [by_name[f.name] if f.name in by_name else pa.nulls(rows, f.type.arrow) for f in self.schema]
        return batch_of(arrays, self.schema, rows)


def file_columns(given: pa.Schema, schema: Schema, name: str) -> FileColumns:
    """How a file with the columns `given` is read.

    Raises:
        DataError: the type of a column does not fit; the message names the file and the column.
    """
    names: list[str] = []
    leaves: list[str] = []
    fits: list[Fit | None] = []
    for field in schema:
        position = given.get_field_index(field.name)
        if position < 0:
            continue
        try:
            kind, paths = needed_leaves(field.name, given.field(position).type, field.type)
            fits.append(fit_column(kind, field.type))
        except UnicodeDecodeError:
            raise DataError(f"{name}: column '{field.name}': the name of a field is not UTF-8") from None
        except MisfitError as error:
            raise DataError(
                f"{name}: column '{field.name}': {error}",
                hint=f"declare the column as the file has it, or read it under another type and CAST ({field.type})",
            ) from None
        names.append(field.name)
        leaves += paths
    return FileColumns(schema, names, leaves, fits)


def sliced(columns: pa.RecordBatch, unit: int, row: int, batch_rows: int) -> Iterator[FileRows]:
    """The rows of a whole unit from row `row` on, in batches, each with the position behind it."""
    while row < columns.num_rows:
        batch = columns.slice(row, batch_rows)
        row += batch.num_rows
        yield FileRows(batch, *((unit + 1, 0) if row >= columns.num_rows else (unit, row)))


def parts_of(sizes: Sequence[int], target_bytes: int) -> Sequence[FilePart]:
    """Consecutive parts of about `target_bytes`, of units with these sizes."""
    parts: list[FilePart] = []
    for unit, size in enumerate(sizes):
        last = parts[-1] if parts else None
        if last is not None and last.size + size <= target_bytes:
            parts[-1] = FilePart(last.first, unit + 1, last.size + size)
        else:
            parts.append(FilePart(unit, unit + 1, size))
    return parts
