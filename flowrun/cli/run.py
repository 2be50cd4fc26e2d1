"""`flowrun run FILE`: run a pipeline in this process, with a live view on a terminal and plain lines elsewhere."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Protocol

import click

from flowrun.cli.arguments import all_overrides, parse_assignments, pipeline_arguments
from flowrun.cli.console import EXIT_INTERRUPTED, say, show_diagnostics

if TYPE_CHECKING:
    from flowrun.runners.embedded import LocalJob
    from flowrun.runtime.messages import JobResult, JobStatus

_LOG_LEVELS = ("debug", "info", "warning", "error")
_REFRESH_MS = 250


class View(Protocol):
    """Shows the progress of a job."""

    def update(self, status: JobStatus) -> None:
        """Show the present status."""
        ...


@click.command()
@pipeline_arguments
@click.option("--mode", type=click.Choice(["streaming", "batch"]), help="batch runs on Spark.")
@click.option("-q", "--quiet", is_flag=True, help="Only errors, and what the pipeline itself prints.")
@click.option(
    "--log-level",
    type=click.Choice(_LOG_LEVELS),
    default="warning",
    show_default=True,
    help="Of the log on standard error.",
)
@click.option("--live/--no-live", default=None, help="Live view or plain lines; by default live on a terminal.")
@click.option(
    "--report", type=click.Path(path_type=Path, dir_okay=False), help="Write the final figures to a JSON file."
)
@click.pass_context
def run(
    ctx: click.Context,
    file: Path,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    parallelism: int | None,
    mode: str | None,
    quiet: bool,
    log_level: str,
    live: bool | None,
    report: Path | None,
) -> None:
    """Run a pipeline to its end, or until it is stopped.

    Ctrl-C stops it cleanly: sources end, what was read is processed and written. A second Ctrl-C cancels.
    """
    logging.basicConfig(
        level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    from flowrun.runners.compile import compile_pipeline
    from flowrun.runners.embedded import start_embedded
    from flowrun.runtime.process import tune_process

    if report is not None:
        _check_report(report)
    tune_process()
    values = all_overrides(overrides, parallelism)
    if mode is not None:
        values["settings.mode"] = mode
    compiled = compile_pipeline(file, parse_assignments(variables, "--var"), values)
    if not quiet:
        show_diagnostics(compiled.warnings)
    with _stop_on_signals(quiet) as interruption, start_embedded(compiled.job_graph) as job:
        interruption.attach(job)
        with _view(quiet, live) as view:
            result = _wait(job, view)
    if report is not None:
        _write_report(report, result)
    if not quiet:
        from flowrun.cli.summary import show_summary

        show_summary(result, frozenset(v.vertex_id for v in compiled.job_graph.vertices if not v.inputs))
    if interruption.requested:
        ctx.exit(EXIT_INTERRUPTED)


def _wait(job: LocalJob, view: View | None) -> JobResult:
    while True:
        result = job.wait(_REFRESH_MS)
        if view is not None:
            view.update(job.status())
        if result is not None:
            return result


class _Interruption:
    """What the user asked for with signals."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._job: LocalJob | None = None
        self.requested = False

    def attach(self, job: LocalJob) -> None:
        """The job that signals are for; one that came before stops it at once."""
        self._job = job
        if self.requested:
            job.stop()

    def handle(self, number: int, frame: FrameType | None) -> None:
        """First signal: stop; second: cancel."""
        if self.requested:
            if self._job is not None:
                self._job.cancel()
            return
        self.requested = True
        if not self._quiet:
            say("\nstopping: what was read is processed and written; press Ctrl-C again to cancel")
        if self._job is not None:
            self._job.stop()


@contextmanager
def _stop_on_signals(quiet: bool) -> Iterator[_Interruption]:
    interruption = _Interruption(quiet)
    before = {number: signal.signal(number, interruption.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _view(quiet: bool, live: bool | None) -> Iterator[View | None]:
    if quiet:
        yield None
    elif live or (live is None and sys.stderr.isatty()):
        from flowrun.cli.live_view import LiveView

        with LiveView() as view:
            yield view
    else:
        from flowrun.cli.progress import ProgressLines

        yield ProgressLines()


def _check_report(path: Path) -> None:
    """Refuse a report that could not be written when the job is done."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise click.BadParameter(f"there is no folder '{path.parent}'", param_hint="--report")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise click.BadParameter(f"'{path}' may not be written", param_hint="--report")


def _write_report(path: Path, result: JobResult) -> None:
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
        {"name": result.name, "state": result.state.value, "duration_ms": result.duration_ms, "vertices": vertices}
    )
    path.write_text(text + "\n", encoding="utf-8")
