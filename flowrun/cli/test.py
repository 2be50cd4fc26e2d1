"""`flowrun test [PATH…]`: runs the tests of pipelines."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowrun.cli.arguments import ENVIRONMENT_OPTION
from flowrun.cli.reports import FORMAT_OPTION, Reported, RuleText, reported, show_github, show_json, show_sarif
from flowrun.cli.user_code import may_tests_run_user_code, spare_pandas
from flowrun.errors import PipelineError, Severity
from flowrun.frontend.project_file import project_file

if TYPE_CHECKING:
    from flowrun.runners.pipeline_tests.binding import BoundTest
    from flowrun.runners.pipeline_tests.check import Result
    from flowrun.runners.pipeline_tests.files import LoadedFile
    from flowrun.runners.pipeline_tests.spark_run import SparkTests


RULES = {
    "failed-test": RuleText("A test of a pipeline fails.", "Other rows came than the test expects, or the run failed."),
    "broken-test": RuleText("A test, or its pipeline, has an error.", "It could not be run."),
}


@click.command()
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, metavar="[PATH]…")
@click.option("-k", "keyword", metavar="NAME", help="Only tests whose names contain this, or a test by its whole name.")
@click.option(
    "--engine",
    type=click.Choice(["embedded", "all"]),
    default="embedded",
    show_default=True,
    help="all: on Spark, too, what ends; the tables at the end must be the same.",
)
@click.option("--update", is_flag=True, help="Write the rows that came into the tests that expect others.")
@ENVIRONMENT_OPTION
@FORMAT_OPTION
@click.option("--coverage", is_flag=True, help="Show steps, conditions and branches of CASE that no test reaches.")
@click.option("-v", "--verbose", is_flag=True, help="A line for each test.")
@click.option(
    "--told", type=click.Path(path_type=Path), hidden=True, help="A report of problems that are shown already."
)
@click.pass_context
def test(
    ctx: click.Context,
    paths: tuple[Path, ...],
    keyword: str | None,
    engine: str,
    update: bool,
    coverage: bool,
    verbose: bool,
    environment: str | None,
    form: str,
    told: Path | None,
) -> None:
    """Run tests of pipelines: the files NAME.test.yaml in PATH; without it, in the project around here, or in this folder.

    Sources are given the rows that a test has, and what comes to the sinks is compared with what it expects. Time stands still unless the
    test moves it. Each test runs as it is written, killed and restored between its steps, the same at another parallelism, and in
    batches of one row: all must give the same. Nothing is read or written outside.

    Exits with 1 if a test fails, with 2 if a test or a pipeline is broken.
    """
    from flowrun.cli.console import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_OK
    from flowrun.frontend.pipeline_tests.finding import find_files

    began = time.monotonic()
    if form != "text" and (update or coverage):
        raise click.UsageError(f"--{'update' if update else 'coverage'} goes with --format text")
    try:
        files = find_files(paths or (_project_folder(),))
        spare_pandas(ctx, wanted=engine == "all" or may_tests_run_user_code(files))  # PySpark may want it, too
        from flowrun.runners.pipeline_tests.check import check
        from flowrun.runners.pipeline_tests.files import load_files
        from flowrun.runners.pipeline_tests.side_by_side import check_all

        loaded = load_files(files, environment)
    except PipelineError as error:
        if form == "text":
            _raise_untold(error, told)
            ctx.exit(EXIT_BAD_INPUT)
        _report([reported(problem, "broken-test") for problem in error.diagnostics], [], form)
        ctx.exit(EXIT_BAD_INPUT)
    chosen = _chosen(loaded, keyword)
    if not chosen:
        raise click.UsageError(f"no test's name contains '{keyword}'")
    results = []
    bound: list[BoundTest] = []
    for file, tests in chosen:
        if update and _update(file, [check(test) for test in tests]):
            again = _chosen(load_files([Path(file.file.source.file)], environment), keyword)
            tests = [test for _, several in again for test in several]  # noqa: PLW2901 - as the file is now
        bound += tests
    with _spark_session(engine) as spark:
        for result in check_all(bound, spark):
            results.append(result)
            if form == "text":
                _show(result, verbose=verbose)
    if form != "text":
        _report([problem for result in results for problem in _problems(result)], results, form)
    if coverage:
        _show_coverage(results)
    if form == "text":
        _summarise(results, len(chosen), time.monotonic() - began)
    ctx.exit(EXIT_OK if all(r.passed for r in results) else EXIT_FAILED)


def _raise_untold(error: PipelineError, told: Path | None) -> None:
    """Raise what is wrong with tests, but for the problems that `flowrun dev` has shown before; return if there are no others."""
    from flowrun.cli.console import say
    from flowrun.cli.told_problems import not_told

    if told is None:
        raise error
    left = not_told(error, told)
    if left is not None:
        raise left from None
    say("the tests have not run: the pipeline has to be right first")


def _project_folder() -> Path:
    """The folder of the project around here; this one if there is none."""
    file = project_file(Path())
    return Path() if file is None else file.parent


def _problems(result: Result) -> list[Reported]:
    """What is wrong with a test that failed, at the places of the file of tests."""
    from flowrun.runners.pipeline_tests.report import render_failure

    name = result.bound.test.name
    return [
        Reported(
            "failed-test", Severity.ERROR, f"test '{name}' fails", render_failure(result, failure), failure.location
        )
        for failure in result.failures
    ]


def _report(problems: list[Reported], results: list[Result], form: str) -> None:
    """Print what failed, and as JSON how each test went, for another program."""
    match form:
        case "github":
            show_github(problems)
        case "sarif":
            show_sarif(problems, RULES)
        case _:
            tests = [
                {
                    "file": result.bound.test.location.file,
                    "line": result.bound.test.location.line,
                    "name": result.bound.test.name,
                    "passed": result.passed,
                    "runs": list(result.variants),
                }
                for result in results
            ]
            show_json({"tests": tests, "problems": [problem.to_json() for problem in problems]})


def _spark_session(engine: str) -> AbstractContextManager[SparkTests | None]:
    if engine != "all":
        return nullcontext()
    from flowrun.runners.pipeline_tests.spark_run import SparkTests

    return SparkTests()


def _chosen(files: list[LoadedFile], keyword: str | None) -> list[tuple[LoadedFile, list[BoundTest]]]:
    """The tests whose names contain the keyword; if one's whole name is that, it alone."""
    if keyword is None:
        return [(file, list(file.tests)) for file in files]
    named = [(f, [b for b in f.tests if b.test.name == keyword]) for f in files]
    if not any(tests for _, tests in named):
        named = [(f, [b for b in f.tests if keyword.lower() in b.test.name.lower()]) for f in files]
    return [(file, tests) for file, tests in named if tests]


def _update(file: LoadedFile, checked: list[Result]) -> bool:
    """Write what came into the file, where it is not what is expected; whether anything changed."""
    from flowrun.cli.views.figures import counted_text
    from flowrun.runners.pipeline_tests.update import edits_of, rewrite

    edits = [edit for result in checked if not result.passed for edit in edits_of(result)]
    if edits:
        source = file.file.source
        rewrite(Path(source.file), source.text, edits)
        click.echo(f"{click.style('updated', fg='yellow')}  {source.file}: rows in {counted_text(len(edits), 'place')}")
    return bool(edits)


def _show(result: Result, *, verbose: bool) -> None:
    """A test that failed, with all that is wrong; of one that passed a line if all are asked for."""
    from flowrun.core.printable import printable
    from flowrun.runners.pipeline_tests.report import render_failure

    at = result.bound.test.location
    title = printable(f"{at.file}:{at.line}  {result.bound.test.name}")
    if result.passed:
        if verbose:
            click.echo(f"{click.style('passed', fg='green')}  {title}")
            if result.not_on_spark is not None:
                click.echo(printable(f"        not on Spark: {result.not_on_spark}"))
        return
    click.echo(f"{click.style('FAILED', fg='red', bold=True)}  {title}")
    for failure in result.failures:
        click.echo(printable(render_failure(result, failure)) + "\n")


def _show_coverage(results: list[Result]) -> None:
    from flowrun.core.printable import printable
    from flowrun.runners.pipeline_tests.coverage import Coverage
    from flowrun.runners.pipeline_tests.report import render_coverage

    reached = Coverage()
    for result in results:
        reached.add(result.bound)
    for pipeline in reached.pipelines:
        click.echo(printable(render_coverage(pipeline)) + "\n")


def _summarise(results: list[Result], files: int, seconds: float) -> None:
    from flowrun.cli.views.figures import counted_text

    failed = sum(not r.passed for r in results)
    runs = sum(len(r.variants) for r in results)
    counts = (
        f"{failed} failed, {len(results) - failed} passed" if failed else f"{counted_text(len(results), 'test')} passed"
    )
    click.echo(f"{counts} in {counted_text(files, 'file')}: {counted_text(runs, 'run')} in {seconds:.1f} s")
