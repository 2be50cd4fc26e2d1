"""`flowrun jobs`: the running jobs of this user on this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from flowrun.cli.figures import count_text, duration_text
from flowrun.cli.running_jobs import SHORT_ID, look
from flowrun.core.clock import SystemClock


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON, with everything that is known.")
def jobs(as_json: bool) -> None:
    """List your running jobs on this machine."""
    from flowrun.runners.control_client import JobClient
    from flowrun.runners.registry import JobRegistry

    found = [about for entry in JobRegistry().entries() if (about := look(JobClient(entry))) is not None]
    if as_json:
        click.echo(json.dumps(found, indent=2))
    elif found:
        click.echo(jobs_table(found, SystemClock().now_ms()))
    else:
        click.echo("no job runs")


def jobs_table(found: Sequence[Mapping[str, Any]], now_ms: int) -> str:
    """Jobs as lines, as `JobControl.describe` gives them."""
    rows = [("ID", "NAME", "STATE", "SINCE", "ROWS", "ROWS/S", "LAST CHECKPOINT", "PID")]
    rows += [
        (
            str(job["job_id"])[:SHORT_ID],
            str(job["name"]),
            str(job["state"]) + (f" ({job['restarts']} restarts)" if job["restarts"] else ""),
            duration_text(max(now_ms - job["started_ms"], 0)),
            count_text(job["rows_read"]),
            count_text(job["rows_per_s"]),
            _last_checkpoint(job["checkpoints"], now_ms),
            str(job["pid"]),
        )
        for job in found
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _last_checkpoint(checkpoints: Mapping[str, Any] | None, now_ms: int) -> str:
    if checkpoints is None:
        return "-"
    last = checkpoints["last"]
    text = "none yet" if last is None else f"{last['id']}, {duration_text(max(now_ms - last['triggered_ms'], 0))} ago"
    return text + (f" ({checkpoints['failed']} failed)" if checkpoints["failed"] else "")
