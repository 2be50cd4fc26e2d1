"""Runs a pipeline on Spark: shows its progress, and says at the end what was done. `run --mode batch` and `backfill` share this."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from flowrun.cli.arguments import ViewOptions
from flowrun.cli.console import EXIT_INTERRUPTED, EXIT_OK, say, show_diagnostics
from flowrun.cli.views.batch_view import BatchLines, BatchView, RunReport, run_summary
from flowrun.cli.views.summary import left_out_lines
from flowrun.masking import masked
from flowrun.plan.client_libraries import check_client_libraries
from flowrun.runners.spark import BatchListener, SparkOptions, run_batch, run_interruptibly

if TYPE_CHECKING:
    from flowrun.plan.nodes import Plan
    from flowrun.runners.compile import CompiledPipeline

T = TypeVar("T")
R = TypeVar("R", bound=RunReport)


def run_batch_job(compiled: CompiledPipeline, options: SparkOptions, view: ViewOptions, form: str | None) -> int:
    """Run a pipeline in batch mode to its end; gives the exit code.

    Args:
        compiled: the pipeline.
        options: where Spark runs, and its settings.
        view: what is shown.
        form: `json` or `csv`, the form in which the rows of a SELECT are printed; None: as text.

    Raises:
        SetupError: a client library is not installed.
    """
    check_client_libraries(compiled.optimised)
    if not view.quiet:
        show_diagnostics(compiled.warnings)
    report = run_shown(lambda listener: run_batch(compiled, options, listener=listener), compiled.optimised, view, form)
    if report is None:
        return EXIT_INTERRUPTED
    left_out = {name: dict(rows.counters) for name, rows in report.left_out.items()}
    skipped = [
        line for name, rows in report.left_out.items() for line in left_out_lines(name, rows.counters, rows.example)
    ]
    show_report(report, view, [*run_summary(report), *skipped], {"left_out": left_out} if left_out else {})
    return EXIT_OK


def run_shown(run: Callable[[BatchListener | None], R], plan: Plan, view: ViewOptions, form: str | None) -> R | None:
    """Run something on Spark and show its progress; gives its result, or None if the user stopped it, which has been said then.

    Args:
        run: what to run; it is given the listener that wants to hear of the progress, or None.
        plan: the plan that it runs.
        view: what is shown.
        form: `json` or `csv`, the form in which the rows of a SELECT are printed; None: as text.
    """
    try:
        with shown_results(plan, form), shown(quiet=view.quiet, live=view.live) as listener:
            return until_stopped(lambda: run(listener))
    except KeyboardInterrupt:
        say("stopped: nothing was written")
        return None


def show_report(
    report: RunReport, view: ViewOptions, lines: list[str], more: Mapping[str, object] = MappingProxyType({})
) -> None:
    """Print `lines` on standard error, and write the report that the user asked for, with the members of `more` added."""
    if view.report is not None:
        view.report.write_text(masked(json.dumps({**_as_json(report), **more})) + "\n", encoding="utf-8")
    if not view.quiet:
        for line in lines:
            say(line)


def shown_results(plan: Plan, form: str | None) -> AbstractContextManager[object]:
    """A context that shows the rows of a SELECT, if they are not shown as the plain lines that its sink prints."""
    if form is None and not sys.stdout.isatty():
        return nullcontext()
    from flowrun.cli.views.changelog_table import final_results, printed_results

    return printed_results(plan, form, final=True) if form is not None else final_results(plan)


@contextmanager
def shown(*, quiet: bool, live: bool | None = None) -> Iterator[BatchListener | None]:
    """A context that gives the listener that shows the progress of a run, or None if nothing is shown.

    Args:
        quiet: whether nothing is shown.
        live: whether there is a live view instead of plain lines; None: there is one on a terminal.
    """
    if quiet:
        yield None
    elif live or (live is None and sys.stderr.isatty()):
        with BatchView() as view:
            yield view.update
    else:
        yield BatchLines().update


def until_stopped(call: Callable[[], T]) -> T:
    """The result of a call that runs Spark.

    Raises:
        KeyboardInterrupt: the user ended it with Ctrl-C or SIGTERM; it has cleaned up.
    """
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        return run_interruptibly(call)
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _as_json(report: RunReport) -> dict[str, object]:
    return {
        "name": report.name,
        "state": "FINISHED",
        "duration_ms": report.start_ms + report.running_ms,
        "spark_start_ms": report.start_ms,
        "sinks": [{"name": name, "rows": rows} for name, rows in report.rows.items()],
    }
