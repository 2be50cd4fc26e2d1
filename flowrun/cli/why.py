"""`flowrun why JOB|FILE`: why nothing comes out of a job, or slowly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from flowrun.cli.arguments import all_overrides, compile_options, parse_assignments
from flowrun.cli.cluster_arguments import ClusterOptions, cluster_options
from flowrun.cli.running_jobs import choose_known, running_jobs
from flowrun.cli.views.figures import SHORT_ID
from flowrun.cli.views.findings import show

_SUFFIXES = frozenset({".yaml", ".yml", ".sql", ".py"})


@click.command()
@click.argument("job", metavar="JOB|FILE")
@click.option(
    "--from-savepoint", "state", metavar="PATH", help="Look at this checkpoint or savepoint instead of a running job."
)
@click.option("--row", metavar="JSON", help="Follow one row of a source through the pipeline, and say where it ends.")
@click.option("--source", metavar="NAME", help="The source that the row is of, if several have its columns.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@compile_options
@cluster_options
def why(
    job: str,
    state: str | None,
    row: str | None,
    source: str | None,
    as_json: bool,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    parallelism: int | None,
    cluster: ClusterOptions | None,
) -> None:
    """Say why nothing comes out of a job, or why it is slow.

    JOB is the name of a running job or the beginning of its id, in a cluster also of one that has ended; FILE is a pipeline: its running
    job, or the one that failed last in the cluster, else its last checkpoint and what its text alone says. What keeps rows from coming
    out is told first.

    With --row '{"user_id": 7, …}' one row of a source goes through the pipeline's operators, with the state of its last checkpoint; sinks
    are not written to. It is told at which step the row ends, and why.
    """
    named = Path(job)
    is_file = named.suffix.lower() in _SUFFIXES and (state is not None or row is not None or named.exists())
    running = None if state is not None else _running(job, named if is_file else None, cluster)
    if running is not None and row is None:
        show(_title(running), str(running["summary"]), running["findings"], as_json=as_json)
        return
    from flowrun.cli.why_file import why_checkpoint, why_row

    given, values = parse_assignments(variables, "--var"), all_overrides(overrides, parallelism)
    file = Path(running["file"]) if running is not None and not is_file else named
    if row is not None:
        why_row(file, given, values, row, source, state, as_json=as_json)
    else:
        why_checkpoint(file, given, values, state, as_json=as_json)


def _running(job: str, file: Path | None, cluster: ClusterOptions | None) -> dict[str, Any] | None:
    """The findings of a running job, or of one that its cluster still knows, with its name, id and file; None: no job of a named file runs.

    Raises:
        PipelineError: no job has the name or id.
    """
    with running_jobs(cluster) as jobs:
        if file is None:
            entry = choose_known(job, jobs)
        else:
            over = _of_file(file, jobs.ended)[-1:]
            own = _of_file(file, jobs.entries) or [entry for entry in over if entry.state == "failed"]
            if not own:
                return None
            entry = own[-1]
        client: Any = jobs.client(entry)
        return {"job_id": entry.job_id, "name": entry.name, "file": entry.file, **client.why()}


def _of_file(file: Path, entries: Sequence[Any]) -> list[Any]:
    return [e for e in entries if e.file and Path(e.file).absolute() == file.absolute()]


def _title(found: Mapping[str, Any]) -> str:
    return f"job '{found['name']}' ({str(found['job_id'])[:SHORT_ID]})"
