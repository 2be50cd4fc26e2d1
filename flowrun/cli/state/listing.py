"""Shows the folders and snapshots that `flowrun state list` finds."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click

from flowrun.cli.views.figures import duration_text
from flowrun.cli.views.tables import show_table, utc_text
from flowrun.core.units import size_text
from flowrun.runners.inspection.snapshots import ListedFolder, ListedSnapshot
from flowrun.state.checkpoints import CheckpointMetadata

_HEADINGS = ("NUMBER", "KIND", "TAKEN", "SIZE", "WRITTEN", "DURATION", "BARRIERS", "RUN", "STATE", "FOLDER")
_RIGHT = ("NUMBER", "SIZE", "WRITTEN", "DURATION")


def show_listing(folders: Sequence[ListedFolder], output: str) -> None:
    """Print folders with their snapshots; `output` is `text` or `json`."""
    if output == "json":
        click.echo(json.dumps([_folder_json(f) for f in folders], indent=2, ensure_ascii=False))
        return
    for number, folder in enumerate(folders):
        if number:
            click.echo()
        name = folder.job_name
        click.echo(f"{folder.path}" + ("" if name is None else f" ({name})"))
        show_table(_HEADINGS, [_row(s) for s in folder.snapshots if not s.used], _RIGHT, indent=2)
        if used := [str(s.number) for s in folder.snapshots if s.used]:
            click.echo(f"  not there any more, but their files are used: {', '.join(used)}")
        for snapshot in folder.snapshots:
            if snapshot.problem is not None:
                click.echo(f"  {click.style('unreadable:', fg='red')} {snapshot.path}: {snapshot.problem}")


def barriers_text(metadata: CheckpointMetadata) -> str:
    """Whether barriers were aligned, and whether event time had ended: `aligned` or `unaligned`, perhaps with `, drained`.

    A checkpoint that holds rows in flight is unaligned.
    """
    text = "unaligned" if metadata.unaligned else "aligned"
    return f"{text}, drained" if metadata.drained else text


def _row(snapshot: ListedSnapshot) -> list[str]:
    metadata = snapshot.metadata
    state = f"{snapshot.state}, resumed from" if snapshot.resumed else snapshot.state
    number = "" if snapshot.number is None else str(snapshot.number)
    folder = snapshot.path.rstrip("/").rpartition("/")[2]
    if metadata is None:
        return [number, *[""] * 7, state, folder]
    return [
        number,
        metadata.kind.value,
        utc_text(metadata.completed_ms),
        size_text(metadata.state_bytes),
        size_text(metadata.written_bytes),
        duration_text(metadata.completed_ms - metadata.triggered_ms),
        barriers_text(metadata),
        metadata.lineage[:8],
        state,
        folder,
    ]


def _folder_json(folder: ListedFolder) -> dict[str, object]:
    return {"path": folder.path, "job": folder.job_name, "snapshots": [_snapshot_json(s) for s in folder.snapshots]}


def _snapshot_json(snapshot: ListedSnapshot) -> dict[str, object]:
    shown: dict[str, object] = {
        "path": snapshot.path,
        "number": snapshot.number,
        "state": snapshot.state,
        "resumed": snapshot.resumed,
        "problem": snapshot.problem,
    }
    metadata = snapshot.metadata
    if metadata is not None:
        shown |= {
            "kind": metadata.kind.value,
            "job": metadata.job_name,
            "lineage": metadata.lineage,
            "triggered_ms": metadata.triggered_ms,
            "completed_ms": metadata.completed_ms,
            "duration_ms": metadata.completed_ms - metadata.triggered_ms,
            "state_bytes": metadata.state_bytes,
            "written_bytes": metadata.written_bytes,
            "unaligned": metadata.unaligned,
            "drained": metadata.drained,
            "flowrun_version": metadata.flowrun_version,
            "format_version": metadata.format_version,
        }
    return shown
