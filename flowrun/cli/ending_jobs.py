"""Ends all jobs of a cluster together, each with a last checkpoint or savepoint, and says how each has ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from flowrun.cli.arguments import StopOptions
from flowrun.cli.console import say
from flowrun.cli.views.figures import spelled_state
from flowrun.errors import ClusterError, FlowrunError, StateError
from flowrun.runners.control_client import JobClient
from flowrun.runners.rest_requests import RestRequests
from flowrun.runners.session.client import listed_jobs
from flowrun.runners.session.messages import JobSummary
from flowrun.runtime.lifecycle import JobState
from flowrun.runtime.rpc.error_values import error_from_value

STOP_WITHIN = "60s"
"""How long jobs have by default."""
_LOOK_S = 0.2


class EndWatch:
    """Says of each job of a cluster that ends how it has ended, once.

    Args:
        requests: to the REST API of the cluster.
        quiet: whether only failures are said.
        known: ids of jobs whose end is known.
    """

    def __init__(self, requests: RestRequests, *, quiet: bool, known: Iterable[str] = ()) -> None:
        self._requests = requests
        self._quiet = quiet
        self._told = set(known)
        self.has_failures = False

    def look(self) -> None:
        """To be called now and then. Raises ClusterError: the cluster does not answer."""
        for job in listed_jobs(self._requests):
            if not JobState(job.state).is_terminal or job.job_id in self._told:
                continue
            self._told.add(job.job_id)
            progress = JobClient(self._requests, job).watch()
            if progress.failure is not None:
                self.has_failures = True
                error = error_from_value(progress.failure)
                hint = f"; {error.hint}" if isinstance(error, FlowrunError) and error.hint else ""
                say(f"'{job.name}' failed: {getattr(error, 'message', error)}{hint}")
            elif not self._quiet:
                stopped_at = None if progress.result is None else progress.result.stopped_at
                say(f"'{job.name}' {spelled_state(job.state) if stopped_at is None else f'stopped at {stopped_at}'}")


def stop_jobs(
    requests: RestRequests, options: StopOptions, *, quiet: bool, is_enough: Callable[[], bool] = lambda: False
) -> tuple[JobSummary, ...]:
    """Stop all jobs of a cluster; gives those that still run when the time is over. A job that has not begun is cancelled.

    Args:
        requests: to its REST API.
        options: how jobs end; without a time they are waited for.
        quiet: whether nothing is said.
        is_enough: whether jobs are waited for no longer.

    Raises:
        ClusterError: the cluster does not answer.
    """
    until = None if options.within_ms is None else time.monotonic() + options.within_ms / 1000
    asked: set[str] = set()
    told, pause = quiet, threading.Event()
    while True:
        running = tuple(job for job in listed_jobs(requests) if job.pid or not JobState(job.state).is_terminal)
        if not running or is_enough() or (until is not None and time.monotonic() > until):
            return running
        if not told:
            say(f"stopping: each job with a {'last checkpoint' if options.savepoint is None else 'savepoint'}")
            told = True
        for job in running:
            if job.job_id not in asked and _ask_to_stop(JobClient(requests, job), job, options.savepoint):
                asked.add(job.job_id)
        pause.wait(_LOOK_S)


def _ask_to_stop(client: JobClient, job: JobSummary, savepoint: str | None) -> bool:
    """Whether the job has heard it. One that restarts, or has just ended, is asked again as long as there is time."""
    try:
        if JobState(job.state) is JobState.CREATED:
            client.place("cancel")
        else:
            client.place("stop", savepoint)
    except (StateError, ClusterError):
        return False
    return True
