"""Rows of a result for a terminal: as a table, or, where its columns do not fit beside each other, row by row with a line a column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from flowrun.core.printable import printable
from flowrun.core.schema import Field, Schema

_LEAST_WORD = 12
"""Cells of the screen that a longer word of a text has at least in a table."""
_LEAST_NESTED = 24
"""Cells of the screen that longer lists, maps and rows have at least."""
_LEAST_LIVE = 12
"""Cells of the screen that columns have on the average, at least, if a table is drawn that cuts some: few lines are to show many rows."""
_AROUND = 3
"""Cells of the screen around each column of a table."""


class ResultRows:
    """Rows, drawn as wide as the place that they have.

    Args:
        schema: the columns.
        texts: the values of each column as texts; None: NULL.
        lines: as many as there may be about, at least one row; None: any number, so that nothing need be cut.
    """

    def __init__(self, schema: Schema, texts: Sequence[Sequence[str | None]], lines: int | None = None) -> None:
        self._schema = schema
        self._texts = [[None if text is None else printable(text) for text in column] for column in texts]
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """See rich."""
        yield self._table() if self._fits(options.max_width) else self._records()

    def _fits(self, width: int) -> bool:
        if self._lines is not None and width >= _LEAST_LIVE * len(self._schema):
            return True
        columns = zip(self._schema, self._texts, strict=True)
        return sum(_least(field, texts) + _AROUND for field, texts in columns) <= width

    def _table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD)
        for field in self._schema:
            justify: Literal["left", "right"] = "right" if field.type.is_numeric else "left"
            table.add_column(Text(field.name), justify=justify, overflow="ellipsis", no_wrap=_is_whole(field))
        for row in zip(*self._texts, strict=True):
            table.add_row(*map(_shown, row))
        return table

    def _records(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, show_header=False)
        table.add_column(overflow="fold", style="bold")
        table.add_column(overflow="fold")
        rows = list(zip(*self._texts, strict=True))
        if self._lines is not None:
            rows = rows[: max(1, self._lines // (len(self._schema) + 1))]
        for row in rows:
            for field, text in zip(self._schema, row, strict=True):
                table.add_row(Text(printable(field.name)), _shown(text))
            table.add_section()
        return table


def _is_whole(field: Field) -> bool:
    """Whether values are kept on one line: a number or a time that is cut in two cannot be read."""
    return field.type.is_numeric or field.type.is_temporal


def _least(field: Field, texts: Sequence[str | None]) -> int:
    """How wide a column of a table has to be, in cells of the screen."""
    shown = ["NULL" if text is None else text for text in texts]
    heading = _longest(field.name.split())
    if _is_whole(field):
        return max(_longest(shown), heading)
    if field.type.is_nested:
        return min(max(_longest(shown), heading), _LEAST_NESTED)
    return min(max(_longest(word for text in shown for word in text.split()), heading), _LEAST_WORD)


def _longest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=0)


def _shown(text: str | None) -> Text:
    return Text("NULL", style="dim") if text is None else Text(text)
