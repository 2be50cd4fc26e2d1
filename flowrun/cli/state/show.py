"""Shows one checkpoint or savepoint for `flowrun state show`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

import click

from flowrun.cli.state.listing import barriers_text
from flowrun.cli.views.figures import duration_text
from flowrun.cli.views.tables import show_table, utc_text
from flowrun.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from flowrun.core.units import size_text
from flowrun.errors import PipelineError, did_you_mean
from flowrun.runners.inspection.description import (
    DescribedExchange,
    DescribedOperator,
    DescribedTable,
    Description,
    describe,
)
from flowrun.runners.inspection.verification import damaged_files
from flowrun.state.storage.locate import SnapshotPath

_SHOWN = 10
_TABLE_HEADINGS = ("TABLE", "KIND", "ROWS", "SIZE", "FILES", "KEY GROUPS")


def show_snapshot(snapshot: SnapshotPath, operator: str | None, verify: bool, output: str) -> bool:
    """Print a snapshot; gives False if one of its files is damaged.

    Args:
        snapshot: what is shown.
        operator: the name, the uid or the first digits of the id of the only operator to show; None: all are shown.
        verify: whether the files are read and checked.
        output: `text` or `json`.

    Raises:
        PipelineError: there is no such operator.
    """
    description = describe(snapshot.metadata)
    operators = description.operators if operator is None else _chosen(description, operator)
    damages = damaged_files(snapshot) if verify else None
    if output == "json":
        shown = _as_json(snapshot, description, operators)
        if damages is not None:
            shown["damaged"] = list(damages)
        click.echo(json.dumps(shown, indent=2, ensure_ascii=False))
        return not damages
    for line in _head(snapshot):
        click.echo(line)
    for described in operators:
        _show_operator(described, columns=operator is not None)
    if operator is None:
        _show_stateless(description)
        _show_in_flight(description.in_flight)
    for damage in damages or ():
        click.echo(f"{click.style('damaged:', fg='red', bold=True)} {damage}")
    if damages == ():
        click.echo("\nall files are as they were written")
    return not damages


def _chosen(description: Description, name: str) -> tuple[DescribedOperator, ...]:
    operators = description.operators
    found = tuple(o for o in operators if name in (o.saved.name, o.saved.uid)) or tuple(
        o for o in operators if len(name) >= 6 and o.saved.operator_id.startswith(name)
    )
    if not found:
        names = [o.saved.name for o in operators] + [o.saved.uid for o in operators if o.saved.uid is not None]
        raise PipelineError.of(f"there is no operator '{name}' in it", hint=did_you_mean(name, names))
    return found


def _head(snapshot: SnapshotPath) -> Iterator[str]:
    about = snapshot.metadata
    title = f"{about.kind.value} {about.checkpoint_id} of '{about.job_name}'"
    yield f"{click.style(title, bold=True)}: {snapshot.folder}"
    took = duration_text(about.completed_ms - about.triggered_ms)
    yield f"  taken {utc_text(about.completed_ms)} in {took}, {barriers_text(about)}, by flowrun {about.flowrun_version}"
    yield f"  {size_text(about.state_bytes)} of files, {size_text(about.written_bytes)} written by itself; run {about.lineage}"
    if about.pipeline is None:
        yield "  pipeline: made in Python, give its program to resume"
    else:
        given = [f"--var {k}={v}" for k, v in about.pipeline.variables.items()]
        given += [f"--set {k}={v}" for k, v in about.pipeline.overrides.items()]
        yield f"  pipeline: {about.pipeline.file_name}, kept inside" + (f", with {' '.join(given)}" if given else "")


def _show_operator(operator: DescribedOperator, *, columns: bool) -> None:
    saved = operator.saved
    if not columns and not operator.tables and saved.enumerator is None:
        return
    found_by = "no uid" if saved.uid is None else f"uid {saved.uid}"
    ended = ", ended" if saved.finished else ""
    facts = f"{found_by}, parallelism {saved.parallelism}, max parallelism {saved.max_parallelism}{ended}"
    click.echo(f"\n{click.style(saved.name, bold=True)}: {facts}, id {saved.operator_id[:8]}")
    if operator.tables:
        show_table(_TABLE_HEADINGS, [_table_row(t) for t in operator.tables], ("ROWS", "SIZE", "FILES"), indent=2)
    elif saved.enumerator is None:
        click.echo("  no state")
    if columns:
        for table in operator.tables:
            click.echo(f"  columns of {table.name}:")
            for column in table.columns:
                key = "  key" if column.is_key else ""
                click.echo(f"    {column.name} {column.type}{key}" + (f"  {column.meaning}" if column.meaning else ""))
    _show_some([_position(operator, i) for i in range(len(operator.positions))], columns, "splits")
    if saved.enumerator is not None:
        text = json.dumps(saved.enumerator, ensure_ascii=False)
        click.echo("  splits to come: " + (text if columns or len(text) <= 200 else text[:200] + " …"))
    pending = [
        f"to commit: {c.commit_id}, of checkpoint {c.checkpoint_id}, {json.dumps(c.payload, ensure_ascii=False)}"
        for c in operator.commits
    ]
    _show_some(pending, columns, "results to commit")


def _show_some(lines: Sequence[str], whole: bool, what: str) -> None:
    shown = lines if whole else lines[:_SHOWN]
    for line in shown:
        click.echo(f"  {line}")
    if len(shown) < len(lines):
        click.echo(f"  … {len(lines) - len(shown)} more {what} (--operator shows all)")


def _position(operator: DescribedOperator, index: int) -> str:
    split = operator.positions[index]
    reached = "" if split.watermark is None else f", event time {time_text(split.watermark)}"
    where = json.dumps(split.position, ensure_ascii=False)
    return f"split {split.split_id} in subtask {split.subtask}: {where}{reached}"


def time_text(epoch_ms: int) -> str:
    """An event time; the two ends of time have names.

    >>> time_text(0), time_text(MAX_TIMESTAMP), time_text(MIN_TIMESTAMP)
    ('1970-01-01 00:00:00Z', 'the end', 'none')
    """
    if epoch_ms == MAX_TIMESTAMP:
        return "the end"
    if epoch_ms == MIN_TIMESTAMP:
        return "none"
    try:
        return utc_text(epoch_ms)
    except (OverflowError, ValueError, OSError):
        return f"{epoch_ms} ms"


def _table_row(table: DescribedTable) -> list[str]:
    kind = "keyed" if table.redistribution is None else f"operator, {table.redistribution}"
    if table.incremental != "whole":
        kind += f", {table.incremental}"
    shared = f" ({table.shared} of earlier)" if table.shared else ""
    spread = table.spread
    groups = (
        "" if spread is None else f"{spread.filled} of {spread.groups}, median {spread.median}, most {spread.largest}"
    )
    return [
        table.name,
        kind,
        str(table.rows) if table.exact else f"≤ {table.rows}",
        size_text(table.size) if table.files else "",
        f"{table.files}{shared}" if table.files else "",
        groups,
    ]


def _show_stateless(description: Description) -> None:
    names = [o.saved.name for o in description.operators if not o.tables and o.saved.enumerator is None]
    if names:
        click.echo(f"\nwithout state: {', '.join(names)}")


def _show_in_flight(exchanges: Iterable[DescribedExchange]) -> None:
    for exchange in exchanges:
        ends = exchange.exchange
        name = exchange.data_set_id[:8] if ends is None else f"'{ends.producer}' to '{ends.consumer}' ({ends.kind})"
        seen = exchange.watermarks
        times = "" if seen is None else f"; channels had reached {' to '.join(dict.fromkeys(map(time_text, seen)))}"
        rows = (
            f"{exchange.rows} row{'s'[: exchange.rows != 1]} ({size_text(exchange.size)}) and {exchange.events} events"
        )
        click.echo(f"\nin flight from {name}: {rows} on {exchange.channels} channels{times}")


def _as_json(
    snapshot: SnapshotPath, description: Description, operators: Iterable[DescribedOperator]
) -> dict[str, object]:
    about = snapshot.metadata
    return {
        "path": snapshot.folder,
        "number": about.checkpoint_id,
        "kind": about.kind.value,
        "job": about.job_name,
        "lineage": about.lineage,
        "triggered_ms": about.triggered_ms,
        "completed_ms": about.completed_ms,
        "state_bytes": about.state_bytes,
        "written_bytes": about.written_bytes,
        "unaligned": about.unaligned,
        "drained": about.drained,
        "flowrun_version": about.flowrun_version,
        "format_version": about.format_version,
        "pipeline": None if about.pipeline is None else about.pipeline.file_name,
        "operators": [_operator_json(o) for o in operators],
        "in_flight": [_exchange_json(e) for e in description.in_flight],
    }


def _operator_json(operator: DescribedOperator) -> dict[str, object]:
    saved = operator.saved
    return {
        "operator_id": saved.operator_id,
        "uid": saved.uid,
        "name": saved.name,
        "parallelism": saved.parallelism,
        "max_parallelism": saved.max_parallelism,
        "finished": saved.finished,
        "bytes": operator.size,
        "tables": [_table_json(t) for t in operator.tables],
        "positions": [
            {"split_id": p.split_id, "subtask": p.subtask, "position": p.position, "watermark_ms": p.watermark}
            for p in operator.positions
        ],
        "enumerator": saved.enumerator,
        "pending_commits": [
            {"commit_id": c.commit_id, "subtask": c.subtask, "checkpoint_id": c.checkpoint_id, "payload": c.payload}
            for c in operator.commits
        ],
    }


def _table_json(table: DescribedTable) -> dict[str, object]:
    spread = table.spread
    return {
        "name": table.name,
        "keyed": table.redistribution is None,
        "redistribution": table.redistribution,
        "incremental": table.incremental,
        "rows": table.rows,
        "exact": table.exact,
        "bytes": table.size,
        "files": table.files,
        "files_of_earlier_checkpoints": table.shared,
        "subtasks": table.subtasks,
        "columns": [{"name": c.name, "type": c.type, "key": c.is_key, "meaning": c.meaning} for c in table.columns],
        "key_groups": None
        if spread is None
        else {
            "groups": spread.groups,
            "filled": spread.filled,
            "median_rows": spread.median,
            "most_rows": spread.largest,
            "fullest": spread.largest_group,
        },
    }


def _exchange_json(exchange: DescribedExchange) -> dict[str, object]:
    ends = exchange.exchange
    return {
        "data_set_id": exchange.data_set_id,
        "from": None if ends is None else ends.producer,
        "to": None if ends is None else ends.consumer,
        "rows": exchange.rows,
        "bytes": exchange.size,
        "events": exchange.events,
        "channels": exchange.channels,
        "watermarks_ms": None if exchange.watermarks is None else list(exchange.watermarks),
    }
