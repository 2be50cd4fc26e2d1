"""Tables: with rich on a terminal, as plain aligned columns elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from datetime import UTC, datetime

import click


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
    """A moment as people read it, in UTC.

    >>> utc_text(1_700_000_000_123)
    '2023-11-14 22:13:20Z'
    """
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _line(cell: str) -> str:
    """One line: a line break would tear the columns apart."""
    return " ".join(cell.splitlines()) if "\n" in cell or "\r" in cell else cell


def _show_rich(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str], indent: int) -> None:
    from rich import box
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, collapse_padding=True)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_line(cell)) for cell in row))  # cells are no markup
    Console().print(Padding(table, (0, 0, 0, indent)))
