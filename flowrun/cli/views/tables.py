"""Prints tables: with rich on a terminal, as plain aligned columns elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from datetime import UTC, datetime

import click

from flowrun.core.printable import printable

_BETWEEN = 2
"""Spaces between columns."""


def show_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = (), indent: int = 0
) -> None:
    """Print a table on standard output; `right` are headings of columns with numbers."""
    if sys.stdout.isatty():
        _show_rich(headings, rows, right, indent)
    else:
        click.echo(table_text(headings, rows, right, indent))


def table_text(
    headings: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = (), indent: int = 0
) -> str:
    """A table as plain lines without a newline at the end.

    >>> print(table_text(["table", "rows"], [["partials", "12"], ["timers", "3"]], right={"rows"}))
    table     rows
    partials    12
    timers       3
    """
    lines = [list(headings), *([_line(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headings))]
    return "\n".join(
        (
            " " * indent
            + "  ".join(
                cell.rjust(width) if heading in right else cell.ljust(width)
                for heading, cell, width in zip(headings, line, widths, strict=True)
            )
        ).rstrip()
        for line in lines
    )


def utc_text(epoch_ms: int) -> str:
    """A moment, given in ms since the epoch, as a date and time in UTC.

    >>> utc_text(1_700_000_000_123)
    '2023-11-14 22:13:20Z'
    """
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _line(cell: str) -> str:
    """The cell as one printable line: a line break would spoil the columns."""
    return printable(" ".join(cell.splitlines()) if "\n" in cell or "\r" in cell else cell)


def _show_rich(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str], indent: int) -> None:
    from rich import box
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = Console()
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, collapse_padding=True)
    lines = [[_line(cell) for cell in row] for row in rows]
    widths = fitting_widths([headings, *lines], console.width - indent - _BETWEEN * len(headings))
    if widths is None:  # some word would have to be broken
        console.print(Padding(Text(records_text(headings, lines)), (0, 0, 0, indent)))
        return
    for heading, width in zip(headings, widths, strict=True):
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold", width=width)
    for line in lines:
        table.add_row(*map(Text, line))  # cells may hold what rich would take for markup
    console.print(Padding(table, (0, 0, 0, indent)))


def fitting_widths(lines: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Widths of the columns, together at most `room`, each at least as wide as its longest word; None: they do not fit.

    >>> fitting_widths([["kind", "taken"], ["savepoint", "2024-03-01 10:00"]], 20)
    [9, 11]
    """
    columns = list(zip(*lines, strict=True))
    widths = [max(map(len, column)) for column in columns]
    least = [max(len(word) for cell in column for word in (cell.split() or [""])) for column in columns]
    while sum(widths) > room:
        widest = max(range(len(widths)), key=lambda i: (widths[i] > least[i], widths[i]))
        if widths[widest] <= least[widest]:
            return None
        widths[widest] -= 1
    return widths


def records_text(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that is too wide as blocks of lines, one block a row, with a line for each column that has a value.

    >>> print(records_text(["NUMBER", "KIND"], [["7", "savepoint"], ["8", ""]]))
    NUMBER  7
    KIND    savepoint
    <BLANKLINE>
    NUMBER  8
    """
    width = max(map(len, headings))
    blocks = (
        "\n".join(f"{heading.ljust(width)}  {cell}" for heading, cell in zip(headings, row, strict=True) if cell)
        for row in rows
    )
    return "\n\n".join(blocks)
