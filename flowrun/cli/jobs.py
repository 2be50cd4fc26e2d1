"""`flowrun jobs`: the running jobs of this user on this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from flowrun.cli.cluster_arguments import ClusterOptions, cluster_options
from flowrun.cli.running_jobs import RunningJobs, look, running_jobs
from flowrun.cli.views.figures import SHORT_ID, count_text, counted_text, duration_text, spelled_state
from flowrun.core.clock import SystemClock

if TYPE_CHECKING:
    from flowrun.runners.control_client import ListedJob


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON, with everything that is known.")
@cluster_options
def jobs(as_json: bool, cluster: ClusterOptions | None) -> None:
    """List your running jobs on this machine, or the jobs of a cluster, also those that have ended."""
    with running_jobs(cluster) as listed:
        found = [
            about
            for entry in (*listed.ended, *listed.entries)
            if (about := look(listed.client(entry)) or _silent(entry, listed)) is not None
        ]
    if as_json:
        click.echo(json.dumps(found, indent=2))
    elif found:
        click.echo(jobs_table(found, SystemClock().now_ms()))
    else:
        click.echo("no job runs")


def _silent(entry: ListedJob, listed: RunningJobs) -> Mapping[str, Any] | None:
    """What is known of a job that does not answer, perhaps because its process is suspended; None if the job has ended meanwhile."""
    if not listed.is_there(entry):
        return None
    known = {"job_id": entry.job_id, "name": entry.name, "file": entry.file, "pid": entry.pid}
    unknown = {"running_ms": None, "rows_read": None, "rows_per_s": None, "restarts": None, "checkpoints": None}
    return {**known, "state": "does not answer", "started_ms": entry.started_ms, **unknown}


def jobs_table(found: Sequence[Mapping[str, Any]], now_ms: int) -> str:
    """A table of jobs, each of which is described as by `JobControl.describe`."""
    rows = [("ID", "NAME", "STATE", "SINCE", "ROWS", "ROWS/S", "LAST CHECKPOINT", "PID")]
    rows += [
        (
            str(job["job_id"])[:SHORT_ID],
            str(job["name"]),
            _state(job),
            duration_text(max(now_ms - job["started_ms"], 0)),
            _count(job["rows_read"]),
            _count(job["rows_per_s"]),
            _last_checkpoint(job["checkpoints"], now_ms),
            str(job["pid"]),
        )
        for job in found
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _state(job: Mapping[str, Any]) -> str:
    """The state, with restarts, and with what the job waits for: `created (waits for slots)`."""
    about = [counted_text(job["restarts"], "restart")] if job["restarts"] else []
    if waits_for := job.get("waits_for"):  # a job of an older version does not say
        about.append(f"waits for {str(waits_for).partition(':')[0]}")
    return spelled_state(str(job["state"])) + (f" ({', '.join(about)})" if about else "")


def _count(count: float | None) -> str:
    return "-" if count is None else count_text(count)


def _last_checkpoint(checkpoints: Mapping[str, Any] | None, now_ms: int) -> str:
    if checkpoints is None:
        return "-"
    last = checkpoints["last"]
    text = "none yet" if last is None else f"{last['id']}, {duration_text(max(now_ms - last['triggered_ms'], 0))} ago"
    return text + (f" ({checkpoints['failed']} failed)" if checkpoints["failed"] else "")
