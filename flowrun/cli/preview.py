"""`flowrun preview FILE`: what a pipeline makes of a sample of its real input."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from flowrun.cli.arguments import all_overrides, duration_ms, parse_assignments, pipeline_arguments
from flowrun.cli.user_code import may_run_user_code, spare_pandas
from flowrun.errors import FlowrunError

if TYPE_CHECKING:
    from flowrun.cli.views.changelog_table import ResultTable
    from flowrun.plan.nodes import Plan
    from flowrun.runners.preview import PreviewResult, Sample

MOST_REPORTED = 1_000
"""Rows of a table in a report."""


F = TypeVar("F", bound=Callable[..., Any])


def sample_options(*, rows: int, sample: int) -> Callable[[F], F]:
    """Add the options that say what is looked at: `sinks`, `step`, `rows`, `sample` and `limit`, a time in ms.

    Args:
        rows: to show of each sink, by default.
        sample: rows to read of each source, by default.
    """

    def decorate(command: F) -> F:
        decorated: Any = command
        for option in (
            click.option(
                "--for", "limit", metavar="DURATION", default="10s", show_default=True, callback=duration_ms,
                help="How long to read at most, from sources that give few rows.",
            ),
            click.option(
                "--sample", type=click.IntRange(1), default=sample, show_default=True, help="Rows to read of each source, about."
            ),
            click.option("--rows", type=click.IntRange(1), default=rows, show_default=True, help="Rows to show of each sink."),
            click.option(
                "--step", metavar="NAME", help="Show what a step of a YAML pipeline, or a table or view of a script, gives."
            ),
            click.option(
                "--sink", "sinks", metavar="NAME", multiple=True, help="Show what this sink would get; may be repeated."
            ),
        ):  # fmt: skip
            decorated = option(decorated)
        return cast(F, decorated)

    return decorate


@click.command()
@pipeline_arguments
@sample_options(rows=20, sample=1_000)
@click.option("--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the rows of all tables, and what was read, or what is wrong, to a JSON file.",
)
@click.pass_context
def preview(
    ctx: click.Context,
    file: Path,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    parallelism: int | None,
    sinks: tuple[str, ...],
    step: str | None,
    rows: int,
    sample: int,
    limit: int,
    form: str,
    report: Path | None,
) -> None:
    """Show what a pipeline makes of a sample of its real input. Nothing is written to its sinks, and no state is kept.

    Sources begin where the pipeline says. When each has given enough rows, or the time is over, they end, and event time with them, so open
    windows fire. What is printed as JSON or CSV are the changes as they come.
    """
    spare_pandas(ctx, wanted=may_run_user_code(file, (*variables, *overrides)))
    from flowrun.cli.console import EXIT_OK
    from flowrun.runners.preview import Sample, preview_plan

    if sinks and step is not None:
        raise click.UsageError("--sink and --step do not go together")
    if report is not None and form != "table":
        raise click.UsageError("--report goes with tables")
    given, values = parse_assignments(variables, "--var"), all_overrides(overrides, parallelism)
    looked_at = Sample(sample, limit)
    with _reporting_problems(report):
        plan = preview_plan(file, given, values, sample=looked_at, sinks=sinks, step=step)
        if not plan.sinks:
            raise click.UsageError(f"'{file}' has no sink: --step says what to look at")
        if form == "table":
            _show_tables(plan, looked_at, rows, report)
        else:
            _print_lines(plan, looked_at, form)
    ctx.exit(EXIT_OK)


@contextmanager
def _reporting_problems(report: Path | None) -> Iterator[None]:
    """A context whose error is written to the report, too."""
    try:
        yield
    except FlowrunError as error:
        if report is not None:
            from flowrun.cli.told_problems import problems_document  # not needed without a failure

            report.write_text(json.dumps(problems_document(error)), encoding="utf-8")
        raise


def _show_tables(plan: Plan, sample: Sample, most: int, report: Path | None) -> None:
    from rich.console import Console
    from rich.text import Text

    from flowrun.cli.views.changelog_table import result_tables
    from flowrun.connectors.live_rows import listening
    from flowrun.runners.preview import run_preview

    tables = result_tables(plan)
    with ExitStack() as stack:
        for table in tables:
            stack.enter_context(listening(table.name, table))
        result = run_preview(plan, sample)
    console = Console(file=sys.stdout)
    for table in tables:
        console.print(Text(table.name, style="bold"))
        console.print(table.render(most))
    _say_what_was_read(result, sample)
    if report is not None:
        report.write_text(json.dumps(_as_json(tables, result)), encoding="utf-8")


def _as_json(tables: Sequence[ResultTable], result: PreviewResult) -> dict[str, object]:
    from flowrun.connectors.row_text import column_text

    rows = {}
    for table in tables:
        shown, _ = table.shown(MOST_REPORTED)
        columns = [column_text(column).to_pylist() for column in shown.columns]
        rows[table.name] = [list(row) for row in zip(*columns, strict=True)]
    return {"read": dict(result.read), "was_cut": result.was_cut, "rows": rows}


def _print_lines(plan: Plan, sample: Sample, form: str) -> None:
    from flowrun.cli.views.changelog_table import printed_results
    from flowrun.runners.preview import run_preview

    if len(plan.sinks) > 1:
        names = ", ".join(sink.table.name for sink in plan.sinks)
        raise click.UsageError(f"lines can be of one sink only: choose one by --sink ({names})")
    with printed_results(plan, form):
        result = run_preview(plan, sample)
    _say_what_was_read(result, sample)


def _say_what_was_read(result: PreviewResult, sample: Sample) -> None:
    from flowrun.cli.console import say
    from flowrun.cli.views.figures import counted_text, duration_text
    from flowrun.cli.views.summary import show_dropped_rows

    for source, count in result.read.items():
        say(f"{counted_text(count, 'row')} of '{source}'")
        if not count and result.was_cut:
            say(f"  none came within {duration_text(sample.ms)}: --for waits longer; a source may begin at its end")
    show_dropped_rows(result.job)
    if result.was_cut:
        say("the input goes on: results are those of this sample, with event time at its end")
