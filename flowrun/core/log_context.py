"""Where a message of the log comes from: which job, which subtask, which process.

A process knows its job and its name, a subtask's thread what it runs; whoever writes a message does not say it. Formatters ask here, on
the thread that logs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from flowrun.core.record import record


@record
class LogContext:
    """What is known of where a message comes from; None: it is not known, or there is no such thing.

    Attributes:
        job_id: of the job.
        job: its name.
        vertex: the vertex's name.
        subtask: its number, from 0.
        parallelism: of its vertex.
        attempt: to run it.
        worker: the process, if it is not that of the job.
    """

    job_id: str | None = None
    job: str | None = None
    vertex: str | None = None
    subtask: int | None = None
    parallelism: int | None = None
    attempt: str | None = None
    worker: str | None = None

    @property
    def place(self) -> str:
        """Subtask and process in a few words; empty if they are not known.

        >>> LogContext(vertex="Source: rows", subtask=0, parallelism=2, worker="w-1").place
        'Source: rows (1/2), w-1'
        """
        task = (
            ""
            if self.vertex is None or self.subtask is None
            else f"{self.vertex} ({self.subtask + 1}/{self.parallelism})"
        )
        return ", ".join(filter(None, (task, self.worker)))


class _Process:
    """What all threads of this process have in common."""

    def __init__(self) -> None:
        self.context = LogContext()


_process = _Process()
_thread = threading.local()


def log_context() -> LogContext:
    """What is known of the thread that calls."""
    own: LogContext | None = getattr(_thread, "context", None)
    process = _process.context
    if own is None:
        return process
    same = own.job == process.job  # its executions have ids of their own
    return replace(own, worker=own.worker or process.worker, job_id=process.job_id if same else own.job_id)


def log_as_worker(worker: str) -> None:
    """This process is a worker of that name."""
    _process.context = LogContext(worker=worker)


def log_for_job(job_id: str, job: str) -> None:
    """This process runs that job from now on; what subtasks log says which one they are of."""
    _process.context = replace(_process.context, job_id=job_id, job=job)


@contextmanager
def logging_for_job(job_id: str, job: str) -> Iterator[None]:
    """A context in which this process runs that job."""
    before = _process.context
    log_for_job(job_id, job)
    try:
        yield
    finally:
        _process.context = before


def log_for_subtask(context: LogContext) -> None:
    """The thread that calls runs that subtask, to its end."""
    _thread.context = context
