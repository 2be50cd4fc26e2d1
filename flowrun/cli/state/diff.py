"""Shows the differences that `flowrun state diff` finds."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click
import pyarrow as pa

from flowrun.cli.state.query import json_rows, text_rows
from flowrun.cli.views.tables import show_table
from flowrun.runners.inspection.diff import TableDifference, diff_states
from flowrun.state.storage.locate import SnapshotPath

_HEADINGS = ("TABLE", "ROWS", "ADDED", "REMOVED", "KEYS ADDED", "KEYS REMOVED", "KEYS CHANGED")


def show_difference(first: SnapshotPath, second: SnapshotPath, sample: int, output: str) -> None:
    """Compare two snapshots and print the result; `output` is `text` or `json`."""
    found = diff_states(first, second, sample)
    if output == "json":
        shown = {"first": first.folder, "second": second.folder, "tables": [_as_json(d) for d in found]}
        click.echo(json.dumps(shown, indent=2, ensure_ascii=False, default=str))
        return
    click.echo(f"- {first.folder}\n+ {second.folder}")
    if not found:
        click.echo("neither has any state")
        return
    show_table(_HEADINGS, [_row(d) for d in found], _HEADINGS[1:])
    for difference in found:
        _show_details(difference)


def _row(difference: TableDifference) -> list[str]:
    before, after = difference.rows
    rows = f"{'-' if before is None else before} -> {'-' if after is None else after}"
    counts = [difference.rows_added, difference.rows_removed]
    keys = [difference.keys_added, difference.keys_removed, difference.keys_changed]
    paired = bool(difference.keys) and before is not None and after is not None
    return [
        difference.title,
        str(before) if before == after else rows,
        *map(str, counts),
        *(map(str, keys) if paired else ("", "", "")),
    ]


def _show_details(difference: TableDifference) -> None:
    if not difference.columns and (difference.sample is None or difference.sample.num_rows == 0):
        return
    click.echo(f"\n{difference.title}" + (f", by {', '.join(difference.keys)}" if difference.keys else ""))
    for change in difference.columns:
        click.echo(f"  {change}")
    rows = difference.sample
    if rows is not None and rows.num_rows:
        show_table(*_sample(rows), indent=2)
        hidden = difference.rows_added + difference.rows_removed - rows.num_rows
        if hidden:
            click.echo(f"  … {hidden} more rows differ (--sample N shows more)")


def _sample(rows: pa.Table) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    return ["", *rows.schema.names[1:]], text_rows(rows)


def _as_json(difference: TableDifference) -> dict[str, object]:
    before, after = difference.rows
    return {
        "table": difference.title,
        "keys": list(difference.keys),
        "equal": difference.is_equal,
        "rows_before": before,
        "rows_after": after,
        "rows_added": difference.rows_added,
        "rows_removed": difference.rows_removed,
        "keys_added": difference.keys_added,
        "keys_removed": difference.keys_removed,
        "keys_changed": difference.keys_changed,
        "columns": list(difference.columns),
        "sample": [] if difference.sample is None else json_rows(difference.sample),
    }
