"""Runs a compiled pipeline on a session cluster: submits it, and follows it as a run of this process is followed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import click

from flowrun.cli.arguments import ViewOptions
from flowrun.cli.cluster_arguments import ClusterOptions
from flowrun.cli.console import EXIT_BAD_INPUT, EXIT_OK, report_failure, say
from flowrun.cli.interruption import stop_on_signals
from flowrun.cli.job import Ending, JobRun, announce, await_end, report_end
from flowrun.cli.views.figures import SHORT_ID
from flowrun.errors import SetupError, StateError
from flowrun.runners.job_text import sent_job
from flowrun.runners.session.client import ClusterJob, job_submission
from flowrun.runners.session.messages import JobSubmission
from flowrun.runners.workers import check_runs_elsewhere
from flowrun.runtime.cluster.job_files import JobFiles


def run_on_cluster(
    run: JobRun,
    variables: Mapping[str, str],
    overrides: Mapping[str, str],
    cluster: ClusterOptions,
    *,
    detach: bool,
    show_traceback: bool,
) -> Ending:
    """Run a pipeline on a cluster to its end, or, detached, until it is submitted.

    Args:
        run: the pipeline, compiled here, and what it restores from.
        variables: with which it was compiled.
        overrides: with which it was compiled.
        cluster: where it runs.
        detach: print the id of the job, and leave it.
        show_traceback: of failures.

    Raises:
        ClusterError: the cluster cannot be reached, or does not take the job.
        PipelineError: the job has to run in this process.
    """
    run = replace(run, place=cluster.as_arguments())
    check_runs_elsewhere(run.compiled.job_graph, remedy="leave --cluster out")
    announce(run)
    submission, files = as_submitted(run, variables, overrides)
    with cluster.client() as client:
        job_id = client.submit(submission, files)
        if detach:
            return _detached(run.view, job_id, cluster)
        if not run.view.quiet:
            say(f"job {job_id[:SHORT_ID]} runs on {cluster}")
        with stop_on_signals(run.view.quiet, checkpoints=run.takes_checkpoints, stop=run.view.stop) as interruption:
            job = ClusterJob(client.job(job_id))
            try:
                result = await_end(run, job, job, interruption, show_traceback=show_traceback)
            except (StateError, SetupError) as error:  # nothing has run
                report_failure(error, show_traceback=show_traceback)
                return Ending(EXIT_BAD_INPUT)
    return report_end(run, result, interrupted=interruption.requested)


def as_submitted(
    run: JobRun, variables: Mapping[str, str], overrides: Mapping[str, str]
) -> tuple[JobSubmission, JobFiles]:
    """What a cluster is given of a pipeline that was compiled here with these values.

    Raises:
        PipelineError: its modules cannot travel.
    """
    sent = sent_job(run.compiled.text, variables, overrides, run.functions_from)
    submission = job_submission(
        run.compiled.job_graph,
        sent.text,
        restore_from=None if run.restored is None else run.restored.folder,
        allow_non_restored=run.allow_non_restored,
        committed_after=run.committed_after,
    )
    return submission, sent.files


def _detached(view: ViewOptions, job_id: str, cluster: ClusterOptions) -> Ending:
    click.echo(job_id)
    if not view.quiet:
        say(f"watch it with:\n  flowrun jobs {cluster.as_arguments()}")
    return Ending(EXIT_OK)
