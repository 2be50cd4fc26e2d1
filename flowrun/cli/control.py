"""`flowrun savepoint`, `stop`, `cancel` and `rescale`: control a running job from another terminal.

The path of the savepoint or checkpoint that was taken is printed on standard output, for scripts; all else on standard error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from flowrun.cli.arguments import duration_ms
from flowrun.cli.cluster_arguments import ClusterOptions, cluster_options
from flowrun.cli.console import say
from flowrun.cli.running_jobs import choose, running_jobs, wait_for_answer
from flowrun.cli.views.checkpoint_text import resume_command
from flowrun.cli.views.figures import spelled_state
from flowrun.core.clock import SystemClock
from flowrun.errors import ClusterError, StateError

if TYPE_CHECKING:
    from flowrun.runners.control import Json
    from flowrun.runners.job_document import JobDocument

F = TypeVar("F", bound=Callable[..., Any])


def _job_command(command: F) -> F:
    timeout = click.option(
        "--timeout",
        metavar="DURATION",
        callback=duration_ms,
        help="Give up waiting after this time, e.g. 5m; what was asked for goes on.",
    )
    return click.argument("job")(timeout(cluster_options(command)))


@click.command()
@_job_command
@click.argument("directory", metavar="[DIR]", required=False)
def savepoint(job: str, directory: str | None, timeout: int | None, cluster: ClusterOptions | None) -> None:
    """Take a savepoint of a running job, which goes on.

    JOB is the name of the pipeline or the beginning of the job's id. The savepoint gets a folder of its own below DIR; by default below
    `settings.checkpoint.savepoints`, else beside the checkpoints.
    """
    _carry_out(job, "savepoint", directory, cluster, timeout=timeout, doing="taking a savepoint of")


@click.command()
@_job_command
@click.option("--savepoint", "directory", metavar="DIR", help="End with a savepoint below DIR instead of a checkpoint.")
@click.option("--drain", is_flag=True, help="Let event time end first: open windows fire. For jobs that end for good.")
def stop(job: str, directory: str | None, drain: bool, timeout: int | None, cluster: ClusterOptions | None) -> None:
    """Stop a running job with a last checkpoint or savepoint, and say how to go on from there.

    A job that takes no checkpoints ends after what was read is processed and written.
    """
    _carry_out(job, "stop", directory, cluster, drain=drain, timeout=timeout, doing="stopping")


@click.command()
@_job_command
def cancel(job: str, timeout: int | None, cluster: ClusterOptions | None) -> None:
    """End a running job at once. Its last checkpoint stays."""
    _carry_out(job, "cancel", None, cluster, timeout=timeout, doing="cancelling")


@click.command()
@_job_command
@click.option("-p", "--parallelism", type=click.IntRange(1), required=True, help="From now on.")
def rescale(job: str, parallelism: int, timeout: int | None, cluster: ClusterOptions | None) -> None:
    """Have a running job go on at another parallelism.

    It takes a checkpoint and goes on from there; a job that waits for slots goes on from its last checkpoint. Steps that set a parallelism
    of their own keep it. If it cannot be, the job goes on as it was.
    """
    doing = f"rescaling to parallelism {parallelism}:"
    _carry_out(job, "rescale", None, cluster, timeout=timeout, doing=doing, parallelism=parallelism)


def _carry_out(
    job: str,
    kind: str,
    directory: str | None,
    cluster: ClusterOptions | None,
    *,
    timeout: int | None,
    doing: str,
    drain: bool = False,
    parallelism: int | None = None,
) -> None:
    from flowrun.cli.restoring import absolute_location

    with running_jobs(cluster) as jobs:
        client = jobs.client(choose(job, jobs))
        name = client.entry.name
        target = None if directory is None else absolute_location(directory)
        document = client.document() if kind in ("savepoint", "stop") else None
        order = client.place(kind, target, drain=drain, parallelism=parallelism)
        try:
            answer = wait_for_answer(client, order, SystemClock(), doing=f"{doing} '{name}'", timeout_ms=timeout)
        except ClusterError:
            if kind == "cancel":  # the job has ended as it was asked to
                say(f"'{name}' is cancelled")
                return
            raise
    if kind == "rescale":
        click.echo(answer["path"])
        say(f"'{name}' goes on at parallelism {parallelism}")
        return
    _say_what_became(kind, name, answer, document, "" if cluster is None else cluster.as_arguments())


def _say_what_became(
    kind: str, name: str, answer: Mapping[str, Json], document: JobDocument | None, place: str
) -> None:
    path = answer["path"]
    if path is not None:
        click.echo(path)
    if kind == "savepoint":
        _say_how_to_resume(str(path), document, place)
        return
    state = str(answer["job_state"])
    if kind == "stop" and state != "finished":
        raise StateError(
            f"'{name}' did not stop as asked: it is {spelled_state(state)}", hint="its own terminal says why"
        )
    say(f"'{name}' is {'stopped' if kind == 'stop' else spelled_state(state)}")
    if path is not None:
        _say_how_to_resume(str(path), document, place)


def _say_how_to_resume(path: str, document: JobDocument | None, place: str) -> None:
    from flowrun.runners.places_of_functions import folder_to_name

    withheld, functions = ((), ()) if document is None else (document.withheld, document.functions)
    say(f"resume with:\n  {resume_command(path, withheld, folder_to_name(functions), place)}")
