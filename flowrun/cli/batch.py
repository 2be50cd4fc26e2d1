"""Running a pipeline on Spark: what is shown meanwhile and said at the end. `run --mode batch` and `backfill` share it."""

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
        options: where to run.
        view: what is shown.
        form: `json` or `csv`: how the rows of a SELECT are printed; None: as text.
    """
    if not view.quiet:
        show_diagnostics(compiled.warnings)
    report = run_shown(lambda listener: run_batch(compiled, options, listener=listener), compiled.optimised, view, form)
    if report is None:
        return EXIT_INTERRUPTED
    left_out = {name: dict(rows.counters) for name, rows in report.left_out.items()}
    skipped = [
        line for name, rows in report.left_out.items() for line in left_out_lines(name, rows.counters, rows.example)
    ]
    tell(report, view, [*run_summary(report), *skipped], {"left_out": left_out} if left_out else {})
    return EXIT_OK


def run_shown(run: Callable[[BatchListener | None], R], plan: Plan, view: ViewOptions, form: str | None) -> R | None:
    """Run something on Spark with its progress shown; None: it was stopped, which is said.

    Args:
        run: given who is to be told of the progress.
        plan: that it runs.
        view: what is shown.
        form: `json` or `csv`: how the rows of a SELECT are printed; None: as text.
    """
    try:
        with shown_results(plan, form), shown(quiet=view.quiet, live=view.live) as listener:
            return until_stopped(lambda: run(listener))
    except KeyboardInterrupt:
        say("stopped: nothing was written")
        return None


def tell(
    report: RunReport, view: ViewOptions, lines: list[str], more: Mapping[str, object] = MappingProxyType({})
) -> None:
    """Tell what became of a run: `lines` on standard error, and the report that was asked for, in which `more` stands too."""
    if view.report is not None:
        view.report.write_text(masked(json.dumps({**_as_json(report), **more})) + "\n", encoding="utf-8")
    if not view.quiet:
        for line in lines:
            say(line)


def shown_results(plan: Plan, form: str | None) -> AbstractContextManager[object]:
    """What shows the rows of a SELECT, where it is not the plain lines that its sink prints."""
    if form is None and not sys.stdout.isatty():
        return nullcontext()
    from flowrun.cli.views.changelog_table import final_results, printed_results

    return printed_results(plan, form, final=True) if form is not None else final_results(plan)


@contextmanager
def shown(*, quiet: bool, live: bool | None = None) -> Iterator[BatchListener | None]:
    """What shows the progress of a run; None: nothing does. `live`: None: on a terminal."""
    if quiet:
        yield None
    elif live or (live is None and sys.stderr.isatty()):
        with BatchView() as view:
            yield view.update
    else:
        yield BatchLines().update


def until_stopped(call: Callable[[], T]) -> T:
    """The result of a call that runs Spark. Ctrl-C and SIGTERM end it: it cleans up, and KeyboardInterrupt is raised."""
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
