"""`flowrun state list|show|diff|query`: commands that look inside checkpoints and savepoints without running anything."""

from __future__ import annotations

from pathlib import Path

import click

from flowrun.cli.console import EXIT_FAILED
from flowrun.cli.spark_arguments import SparkArguments, spark_arguments

_DEFAULT_DIRECTORY = ".flowrun/state"  # `DEFAULT_STATE_DIRECTORY` of the runtime, which `--help` need not import


_JSON = click.option("--json", "output", flag_value="json", help="Short for --format json.")


@click.group()
@click.pass_context
def state(ctx: click.Context) -> None:
    """Look inside checkpoints and savepoints.

    DIR is a savepoint, one checkpoint, a pipeline's folder of checkpoints (its newest one counts) or a folder of such folders, as a path
    or a URI.
    """
    from flowrun.state.storage.leases import holding_leases

    ctx.with_resource(holding_leases())  # the job of the folder may be running


@state.command("list")
@click.argument("directory", metavar="[DIR]", default=_DEFAULT_DIRECTORY)
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@_JSON
def list_command(directory: str, output: str) -> None:
    """List the checkpoints and savepoints in a folder (default: .flowrun/state)."""
    from flowrun.cli.restoring import as_input_error
    from flowrun.cli.state.listing import show_listing
    from flowrun.errors import StateError
    from flowrun.runners.inspection.snapshots import list_snapshots

    try:
        folders = list_snapshots(directory)
    except StateError as error:
        raise as_input_error(error) from error
    show_listing(folders, output)


@state.command("show")
@click.argument("directory", metavar="DIR")
@click.option(
    "--operator", metavar="NAME", help="Only this operator (name, uid or id), with the columns of its tables."
)
@click.option("--verify", is_flag=True, help="Read all files and check their checksums.")
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@_JSON
@click.pass_context
def show_command(ctx: click.Context, directory: str, operator: str | None, verify: bool, output: str) -> None:
    """Show what one checkpoint or savepoint consists of."""
    from flowrun.cli.restoring import locate_state
    from flowrun.cli.state.show import show_snapshot

    if not show_snapshot(locate_state(directory, None), operator, verify, output):
        ctx.exit(EXIT_FAILED)


@state.command("diff")
@click.argument("first", metavar="DIR1")
@click.argument("second", metavar="DIR2")
@click.option(
    "--sample", type=click.IntRange(0), default=5, show_default=True, help="Rows to show of each table that differs."
)
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@_JSON
def diff_command(first: str, second: str, sample: int, output: str) -> None:
    """Compare two checkpoints or savepoints table by table: rows and keys added, removed and changed."""
    from flowrun.cli.restoring import locate_state
    from flowrun.cli.state.diff import show_difference

    show_difference(locate_state(first, None), locate_state(second, None), sample, output)


@state.command("query")
@click.argument("directory", metavar="DIR")
@click.argument("sql", metavar="SQL")
@click.option(
    "--format",
    "output",
    type=click.Choice(["table", "csv", "json", "parquet"]),
    help="Default: by the name of the output file, else table.",
)
@click.option("-o", "--output", "file", type=click.Path(path_type=Path, dir_okay=False), help="Write to a file.")
@click.option(
    "--engine",
    type=click.Choice(["duckdb", "spark"]),
    default="duckdb",
    show_default=True,
    help="What runs the SELECT: spark is for state that outgrows this machine.",
)
@spark_arguments
def query_command(
    directory: str, sql: str, output: str | None, file: Path | None, engine: str, spark: SparkArguments
) -> None:
    """Run a SELECT over the state; each table of an operator is a view.

    \b
      flowrun state query DIR "SHOW TABLES"
      flowrun state query DIR 'SELECT * FROM "per_minute.partials" LIMIT 10'
      flowrun state query DIR "SELECT count(*) FROM per_minute_partials"
    """  # noqa: D301
    from flowrun.cli.restoring import locate_state
    from flowrun.cli.state.query import query_format, write_result

    form = query_format(output, file)
    snapshot = locate_state(directory, None)
    if engine == "spark":
        from flowrun.runners.spark_state import query_state_on_spark

        write_result(query_state_on_spark(snapshot, sql, spark.options()), form, file)
        return
    if spark.are_given:
        raise click.UsageError("--spark-master, --spark-remote and --conf go with --engine spark")
    from flowrun.runners.inspection.query import query_state

    write_result(query_state(snapshot, sql), form, file)
