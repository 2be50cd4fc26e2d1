"""`flowrun sql`: statements of SQL one after the other, from a terminal or from standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowrun.cli.arguments import ViewOptions, all_overrides, compile_options, parse_assignments
from flowrun.cli.logs import LogOptions
from flowrun.cli.run import STANDARD_INPUT, text_of_standard_input

if TYPE_CHECKING:
    from flowrun.runners.sql_session import SqlSession


@click.command()
@click.option(
    "--init",
    "files",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    help="Begin with what a script declares; its queries and INSERTs do not run. May be repeated.",
)
@click.option("--format", "form", type=click.Choice(["json", "csv"]), help="How rows are printed; else as tables.")
@compile_options
@click.pass_context
def sql(
    ctx: click.Context,
    files: tuple[Path, ...],
    form: str | None,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    parallelism: int | None,
) -> None:
    """A shell for SQL: declare tables, ask them, describe and explain.

    A statement ends with a semicolon. Each query and INSERT runs as a job of its own, and Ctrl-C ends it; what was declared stays known
    to the end. Tab completes words; the arrow keys go through what was typed before. Without a terminal, statements are read from
    standard input, and the first that fails is the end.
    """
    from flowrun.cli.console import EXIT_OK
    from flowrun.cli.job import prepare
    from flowrun.runners.sql_session import SqlSession

    prepare(ViewOptions(quiet=True, log=LogOptions(), live=None, report=None))
    session = SqlSession(parse_assignments(variables, "--var"), all_overrides(overrides, parallelism))
    for file in files:
        _declare(session, file)
    if sys.stdin.isatty():
        from flowrun.cli.sql.completion import SqlCompleter
        from flowrun.cli.sql.prompt import StatementPrompt, typed_before

        click.echo("Statements end with a semicolon. SHOW TABLES; lists tables, quit ends.")
        with closing(SqlCompleter(session)) as completer:
            _run_each(session, StatementPrompt(completer, typed_before()).statements(), form)
        ctx.exit(EXIT_OK)
    ctx.exit(_run_script(session, text_of_standard_input(), form))


def _declare(session: SqlSession, file: Path) -> None:
    """Know what a script declares."""
    from flowrun.cli.console import show_diagnostics
    from flowrun.errors import PipelineError
    from flowrun.runners.sql_session import placed_statements

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError.of(f"cannot read '{file}': {error}") from error
    for statement, before in placed_statements(text):
        show_diagnostics(session.compile(statement, before, str(file)).warnings)


def _run_script(session: SqlSession, text: str, form: str | None) -> int:
    """Run the statements of a text; gives the exit code of the first that fails, else 0."""
    from flowrun.cli.console import EXIT_OK
    from flowrun.runners.sql_session import placed_statements

    for statement, before in placed_statements(text):
        code = _run(session, statement, form, before, str(STANDARD_INPUT))
        if code != EXIT_OK:
            return code
    return EXIT_OK


def _run_each(session: SqlSession, statements: Iterable[str], form: str | None) -> None:
    """Run statements as they come; what is wrong with one is said, and the next may be better."""
    from flowrun.cli.console import report_failure
    from flowrun.errors import FlowrunError

    for statement in statements:
        try:
            _run(session, statement, form)
        except (FlowrunError, KeyboardInterrupt) as error:
            report_failure(error, show_traceback=False)


def _run(session: SqlSession, statement: str, form: str | None, before: str = "", file: str = "statement") -> int:
    """Run one statement, with places as `SqlSession.compile` has them; gives the exit code that it would have as a command."""
    from flowrun.cli.console import EXIT_OK, show_diagnostics, show_outputs
    from flowrun.cli.job import JobRun
    from flowrun.cli.run import run_as_batch, run_with_results

    compiled = session.compile(statement, before, file)
    show_diagnostics(compiled.warnings)
    show_outputs(compiled.outputs)
    if not compiled.runs:
        return EXIT_OK
    view = ViewOptions(quiet=True, log=LogOptions(), live=None, report=None)
    if compiled.is_batch:
        from flowrun.spark.session import SparkOptions

        return run_as_batch(compiled, SparkOptions(), view, form)
    job = JobRun(compiled, view, workers=0)
    return run_with_results(job, compiled.optimised, form, show_traceback=False)
