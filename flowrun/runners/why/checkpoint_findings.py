"""Findings about a checkpoint of a job that does not run: what its operators wait for, and what they keep.

The operators are brought back with their state, cut off from the outside; so what is said of a running job can be said of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa

from flowrun.core.clock import Clock
from flowrun.errors import FlowrunError, StateError
from flowrun.graph.job_graph import JobGraph
from flowrun.operators.keyed.key_rows import NUM_STATE_ROWS
from flowrun.operators.source import SPLITS
from flowrun.runners.inspection.description import DescribedTable, describe
from flowrun.runners.inspection.snapshots import list_snapshots
from flowrun.runners.inspection.tables import StateDatabase, quoted
from flowrun.runners.why.event_time import what_waits
from flowrun.runners.why.finding import (
    SEVERITIES,
    Figure,
    Finding,
    Severity,
    Thresholds,
    count_text,
    duration_text,
    share_text,
    time_text,
)
from flowrun.runners.why.isolated import run_isolated
from flowrun.runners.why.job_view import JobView, OperatorView
from flowrun.runners.why.spread import has_ttl
from flowrun.state.checkpoints import OperatorMetadata
from flowrun.state.storage.locate import SnapshotPath

_SHOWN_KEYS = 3
_SKEWED_GROUP = 10
"""A key group with so many times the rows of the median one is told."""


def checkpoint_findings(
    snapshot: SnapshotPath, job_graph: JobGraph, clock: Clock, thresholds: Thresholds | None = None
) -> tuple[Finding, ...]:
    """What is found in a checkpoint or savepoint, the worst first. Reads its state, and writes nothing.

    Args:
        snapshot: of the job.
        job_graph: of the job, streaming; it fits the snapshot.
        clock: processing time.
        thresholds: from when on something is worth telling; None: the usual ones.

    Raises:
        StateError: the state cannot be read.
    """
    limits = thresholds or Thresholds()
    metadata = snapshot.metadata
    if any(o.finished for o in metadata.operators.values()) or metadata.drained:
        return (
            Finding(
                "at_end",
                Severity.INFORMS,
                "the job had come to its end",
                "Sources were read to their ends before the checkpoint, or event time was ended. Nothing waits any more.",
            ),
        )
    view = JobView(run_isolated(job_graph, {}, snapshot, clock).details, limits)
    found = [
        *_held_splits(view, snapshot, limits),
        *_waiting(view),
        *_growing(view, snapshot, limits),
        *_heavy_keys(snapshot, limits),
    ]
    found.sort(key=lambda f: SEVERITIES.index(f.severity))
    return tuple(found)


def _waiting(view: JobView) -> Iterator[Finding]:
    for operator in view.operators:
        finding = what_waits(operator, view.now_ms, Severity.INFORMS)
        if finding is not None:
            yield replace(finding, text=f"At the checkpoint: {finding.text}")


def _held_splits(view: JobView, snapshot: SnapshotPath, limits: Thresholds) -> Iterator[Finding]:
    """Splits that were behind the others of their source. How long they had been silent the checkpoint does not say."""
    waiting = {s.operator_id: view.waiting_behind(s) for s in view.sources}
    for saved in snapshot.metadata.operators.values():
        rows = _split_rows(saved)
        known = [r["watermark"] for r in rows if isinstance(r["watermark"], int)]
        held = [r for r in rows if not r["idle"]]
        if not known or len(rows) < 2 or not held or not waiting.get(saved.operator_id):
            continue
        lowest = min(held, key=lambda r: (r["watermark"] is not None, r["watermark"] or 0))
        behind = None if lowest["watermark"] is None else max(known) - int(str(lowest["watermark"]))
        if behind is not None and behind < limits.behind_ms:
            continue
        name, source = str(lowest["split_id"]), saved.name.removeprefix("Source: ")
        yield Finding(
            "watermark_held_back",
            Severity.RISKS,
            f"split '{name}' of source '{source}' was behind the others",
            ("It had sent no row" if behind is None else f"It had come {duration_text(behind)} less far in event time")
            + f", while the furthest had come to {time_text(max(known))}. What goes by event time waits for the slowest that is not idle.",
            (saved.vertex_id,),
            saved.operator_id,
            {"split": name, "behind_ms": behind, "highest_watermark": max(known)},
            "if nothing comes from there, give the watermark an idle timeout",
        )


def _split_rows(saved: OperatorMetadata) -> list[dict[str, object]]:
    tables: list[pa.Table] = [s.operator[SPLITS].rows for s in saved.subtasks.values() if SPLITS in s.operator]
    return [row for table in tables for row in table.to_pylist() if "watermark" in row]


def _growing(view: JobView, snapshot: SnapshotPath, limits: Thresholds) -> Iterator[Finding]:
    """Operators whose state only grows: it has no time to live, and was larger in each checkpoint that is there."""
    sizes = _history(snapshot)
    for operator in view.operators:
        rows = operator.total(NUM_STATE_ROWS)
        trend = sizes.get(operator.operator_id, [])
        grew = len(trend) >= 3 and all(a < b for a, b in pairwise(trend))
        if rows < limits.growing_rows or has_ttl(operator) or not grew:
            continue
        yield _grows(operator, rows, trend)


def _grows(operator: OperatorView, rows: int, trend: list[int]) -> Finding:
    return Finding(
        "state_grows",
        Severity.RISKS,
        f"the state of '{operator.name}' grows",
        f"It keeps {count_text(rows, 'entry', 'entries')} without a time to live. Over the last {len(trend)} checkpoints its files went"
        f" from {trend[0]:,} to {trend[-1]:,} rows.",
        (operator.vertex_id,),
        operator.operator_id,
        {"entries": rows, "file_rows": trend[-1], "file_rows_before": trend[0]},
        "give it a time to live (settings.state.ttl; STATE_TTL in SQL), or let it go by windows",
    )


def _history(snapshot: SnapshotPath) -> dict[str, list[int]]:
    """Rows in the files of each operator, in the checkpoints of the folder up to this one, oldest first."""
    found: dict[str, list[int]] = {}
    try:
        folders = list_snapshots(snapshot.root)
    except StateError:  # a savepoint stands alone
        return found
    for listed in (s for folder in folders for s in folder.snapshots):
        metadata = listed.metadata
        if metadata is None or metadata.checkpoint_id > snapshot.metadata.checkpoint_id:
            continue
        for operator in describe(metadata).operators:
            rows = sum(t.rows for t in operator.tables if t.redistribution is None)
            found.setdefault(operator.saved.operator_id, []).append(rows)
    return found


def _heavy_keys(snapshot: SnapshotPath, limits: Thresholds) -> Iterator[Finding]:
    """Tables of which one key has many rows, by name; or whose rows lie in one key group, where keys cannot be asked."""
    described = {o.saved.operator_id: o for o in describe(snapshot.metadata).operators}
    try:
        with StateDatabase([snapshot]) as database:
            for number, table in enumerate(database.tables[0]):
                operator = described.get(table.operator_id)
                if operator is None or table.rows is not None:
                    continue
                shape = next((t for t in operator.tables if t.name == table.name), None)
                if shape is None or shape.rows < limits.skewed_rows or not _keys(shape):
                    continue
                database.load(0, number)
                yield from _heaviest(database, database.relation(0, number), operator.saved, shape, limits)
    except StateError:  # DuckDB is not there: nothing is said of keys
        return
    except FlowrunError:
        raise


def _keys(table: DescribedTable) -> list[str]:
    return [c.name for c in table.columns if c.is_key]


def _heaviest(
    database: StateDatabase, relation: str, saved: OperatorMetadata, table: DescribedTable, limits: Thresholds
) -> Iterator[Finding]:
    keys = _keys(table)
    columns = ", ".join(map(quoted, keys))
    total = int(database.run(f"SELECT count(*) FROM {relation}")[0][0])
    rows = database.run(
        f"SELECT {columns}, count(*) AS n FROM {relation} GROUP BY ALL ORDER BY n DESC, {columns} LIMIT {_SHOWN_KEYS}"
    )
    heavy = [(row[:-1], int(row[-1])) for row in rows if total and row[-1] / total >= limits.heavy_key]
    if total < limits.skewed_rows or not heavy:
        return
    named = [(", ".join(f"{k} = {v!r}" for k, v in zip(keys, key, strict=True)), count) for key, count in heavy]
    figures: dict[str, Figure] = {"rows": total}
    figures.update((f"key {key}", count) for key, count in named)
    yield Finding(
        "heavy_keys",
        Severity.INFORMS,
        f"few keys have most of the state of '{saved.name}'",
        f"Of {count_text(total)} in table '{table.name}': "
        + "; ".join(f"{key} has {count:,} ({share_text(count, total)})" for key, count in named)
        + ".",
        (saved.vertex_id,),
        saved.operator_id,
        figures,
        "all rows of a key are in one subtask: more subtasks do not spread them",
    )
