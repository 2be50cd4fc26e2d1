"""The file of `--report`: how a job ended, with its vertices and checkpoints, as JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from flowrun.masking import masked
from flowrun.runtime.job_status import JobResult


def check_report(path: Path) -> None:
    """Raise BadParameter if a report could not be written to this file."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise click.BadParameter(f"there is no folder '{path.parent}'", param_hint="--report")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise click.BadParameter(f"'{path}' may not be written", param_hint="--report")


def write_report(path: Path, result: JobResult) -> None:
    """Write how a job ended, without secrets."""
    vertices = [
        {
            "id": v.vertex_id,
            "name": v.name,
            "parallelism": v.parallelism,
            "records_in": v.records_in,
            "records_out": v.records_out,
            "bytes_in": v.bytes_in,
            "bytes_out": v.bytes_out,
            "latency_ms": {source: list(quantiles) for source, quantiles in v.latency_ms.items()},
            "counters": {operator: dict(counters) for operator, counters in v.counters.items()},
        }
        for v in result.vertices
    ]
    text = json.dumps(
        {
            "name": result.name,
            "state": result.state.value,
            "duration_ms": result.duration_ms,
            "vertices": vertices,
            "checkpoints": _checkpoints_json(result),
            "restarts": result.restarts,
            "stopped_at": result.stopped_at,
        }
    )
    path.write_text(masked(text) + "\n", encoding="utf-8")


def _checkpoints_json(result: JobResult) -> dict[str, Any] | None:
    status = result.checkpoints
    if status is None:
        return None
    return {
        "completed": status.completed,
        "failed": status.failed,
        "last_failure": status.last_failure,
        "history": [
            {
                "id": c.checkpoint_id,
                "kind": c.kind.value,
                "path": c.path,
                "triggered_ms": c.triggered_ms,
                "duration_ms": c.duration_ms,
                "state_bytes": c.state_bytes,
                "written_bytes": c.written_bytes,
                "max_synchronous_ms": c.max_synchronous_ms,
                "max_alignment_ms": c.max_alignment_ms,
            }
            for c in status.history
        ],
    }
