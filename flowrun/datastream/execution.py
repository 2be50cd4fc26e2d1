"""Who runs the jobs of a program: the embedded runtime, or whoever started the program.

A program ends with `env.execute()`. Started by itself (`python job.py`) it runs its jobs in its own process; `flowrun run job.py`
runs them with all that the command line says, `flowrun explain job.py` only shows them. After Apache Flink's `PipelineExecutor`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from flowrun.runtime.job_status import JobResult, JobStatus

if TYPE_CHECKING:
    from flowrun.datastream.environment import StreamExecutionEnvironment

EMBEDDED = "flowrun.runners.embedded:EmbeddedExecutor"
"""Who runs the jobs of a program that nobody else has started; loaded by name, as it stands above the streams."""


class JobClient(Protocol):
    """A job that runs."""

    @property
    def job_id(self) -> str:
        """Unique to this run."""
        ...

    def status(self) -> JobStatus:
        """What the job looks like now, also after its end."""
        ...

    def stop(self, drain: bool = False) -> None:
        """Have the sources end early, and the job finish with what they sent; `drain`: event time goes to its end."""
        ...

    def cancel(self) -> None:
        """End the job as soon as possible."""
        ...

    def wait(self, timeout_ms: float | None = None) -> JobResult | None:
        """The result at its end; None if it still runs after so long. Raises JobFailedError if it failed."""
        ...


class PipelineExecutor(Protocol):
    """Runs the jobs of a program."""

    @property
    def variables(self) -> Mapping[str, str]:
        """Values for the program, by name; environment variables of the process come last."""
        ...

    def execute(self, environment: StreamExecutionEnvironment) -> JobResult:
        """Run the job of an environment to its end. Raises JobFailedError if it failed."""
        ...

    def execute_async(self, environment: StreamExecutionEnvironment) -> JobClient:
        """Start the job of an environment."""
        ...


_executors: list[PipelineExecutor] = []


@contextmanager
def executing(executor: PipelineExecutor) -> Iterator[None]:
    """Let `executor` run the jobs of the programs that are run meanwhile."""
    _executors.append(executor)
    try:
        yield
    finally:
        _executors.remove(executor)


def current_executor() -> PipelineExecutor:
    """Who runs jobs now."""
    if _executors:
        return _executors[-1]
    module, _, name = EMBEDDED.partition(":")
    executor: PipelineExecutor = getattr(importlib.import_module(module), name)()
    return executor
