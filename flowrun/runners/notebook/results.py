"""The rows of a query, as they are now or at the end: for Arrow, pandas, polars and DuckDB, and as a table in notebooks."""

from __future__ import annotations

import html
import threading
from contextlib import ExitStack
from typing import Any

import pyarrow as pa

from flowrun.api.changelog import ChangelogMode
from flowrun.connectors.live_rows import listening
from flowrun.connectors.newest_rows import NewestRows
from flowrun.connectors.row_text import column_text
from flowrun.core.elements import RecordBatch, removals
from flowrun.core.schema import Schema
from flowrun.plan.changelog import sink_mode
from flowrun.plan.nodes import Plan
from flowrun.runners.preview import PreviewResult, Sample, run_preview

_SHOWN_ROWS = 20


class Result:
    """The rows of one query or sink: the final table, if they are updated. Its Arrow columns have the types of flowrun's schema.

    It is an Arrow stream (`__arrow_c_stream__`), so whatever takes one reads it without copies: `polars.from_arrow(result)`,
    `duckdb.from_arrow(result.arrow())`, `pyarrow.table(result)`.
    """

    def __init__(self, name: str, schema: Schema, *, updating: bool) -> None:
        self.name = name
        """Of the sink."""
        self.schema = schema
        """Names and SQL types of the columns."""
        self.changes = 0
        """How many rows, and changes of rows, came by now."""
        self._updating = updating
        self._lock = threading.Lock()
        self._newest = NewestRows(schema.arrow, range(len(schema)))
        self._batches: list[pa.RecordBatch] = []

    def take(self, batch: RecordBatch) -> None:
        """Rows come; for the job's threads."""
        with self._lock:
            self.changes += batch.num_rows
            if self._updating:
                self._newest.add(batch.columns, None if batch.row_kinds is None else removals(batch.row_kinds))
            elif batch.num_rows:
                self._batches.append(batch.columns)

    def arrow(self) -> pa.Table:
        """The rows as an Arrow table."""
        with self._lock:
            batches = [self._newest.alive()] if self._updating else list(self._batches)
        return pa.Table.from_batches(batches, self.schema.arrow)

    def pandas(self) -> Any:
        """The rows as a data frame of pandas."""
        return self.arrow().to_pandas()

    def polars(self) -> Any:
        """The rows as a data frame of polars. Raises ImportError: it is not installed."""
        import polars

        return polars.from_arrow(self.arrow())

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows as tuples of Python values."""
        columns = [column.to_pylist() for column in self.arrow().columns]
        return list(zip(*columns, strict=True))

    def texts(self, most: int) -> list[list[str | None]]:
        """The columns of the first rows, at most so many, as `flowrun preview` shows them; None for NULL."""
        return _texts(self.arrow(), most)

    def __len__(self) -> int:
        return int(self.arrow().num_rows)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.arrow().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        table = self.arrow()
        texts = [[field.name for field in self.schema], *zip(*_shown(table), strict=True)]
        widths = [max(len(row[i]) for row in texts) for i in range(len(self.schema))]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in texts
        ]
        return "\n".join([*lines, _count(table)])

    def _repr_html_(self) -> str:
        table = self.arrow()
        head = "".join(
            f"<th>{html.escape(field.name)}<br><small>{html.escape(str(field.type))}</small></th>"
            for field in self.schema
        )
        rows = zip(*_shown(table), strict=True)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(text)}</td>' for text in row)}</tr>" for row in rows)
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p><small>{_count(table)}</small></p>"
        )


def results_of(plan: Plan) -> dict[str, Result]:
    """An empty result for each sink that hands its rows over."""
    live = [
        s for s in plan.sinks if s.table.connector == "print" and str(s.table.options.get("live")).lower() == "true"
    ]
    return {
        s.table.name: Result(s.table.name, s.schema, updating=sink_mode(plan, s) is not ChangelogMode.APPEND)
        for s in live
    }


def sampled_results(plan: Plan, sample: Sample) -> tuple[dict[str, Result], PreviewResult]:
    """Run a plan of `flowrun.runners.preview` on a sample; gives the rows by sink, and what was read. Raises as `run_preview`."""
    results = results_of(plan)
    with ExitStack() as stack:
        for result in results.values():
            stack.enter_context(listening(result.name, result))
        return results, run_preview(plan, sample)


def _shown(table: pa.Table) -> list[list[str]]:
    return [["NULL" if text is None else text for text in column] for column in _texts(table, _SHOWN_ROWS)]


def _texts(table: pa.Table, most: int) -> list[list[str | None]]:
    """The columns of the first rows as texts."""
    shown = table.slice(0, most).combine_chunks()
    batch = shown.to_batches()[0] if shown.num_rows else pa.RecordBatch.from_pylist([], table.schema)
    return [column_text(column).to_pylist() for column in batch.columns]


def _count(table: pa.Table) -> str:
    count = f"{table.num_rows:,} row{'s'[: table.num_rows != 1]}"
    return f"{count}, {_SHOWN_ROWS} of them shown" if table.num_rows > _SHOWN_ROWS else count
