"""`flowrun apply FILE`: put a new version of a pipeline in the place of the one that runs, and back if it is not healthy."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowrun.cli.arguments import ALLOW_NON_RESTORED, DurationType, all_overrides, compile_options, parse_assignments
from flowrun.cli.cluster_arguments import ClusterOptions, cluster_options

if TYPE_CHECKING:
    pass


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@compile_options
@click.option("--to", metavar="JOB", help="The running job, if its name is not that of FILE.")
@click.option(
    "--healthy-within",
    type=DurationType(),
    default="60s",
    show_default=True,
    metavar="DURATION",
    help="By then the new version has to be healthy; else the old one goes on.",
)
@click.option(
    "--healthy-for",
    type=DurationType(),
    default="5s",
    show_default=True,
    metavar="DURATION",
    help="For how long the new version has to be healthy before it is accepted.",
)
@ALLOW_NON_RESTORED
@click.option(
    "--version", "number", type=click.IntRange(1), metavar="N", help="In place of FILE: a version of the history."
)
@click.option(
    "--shadow",
    is_flag=True,
    help="First run both versions over rows that come now, from the state of now and into files, and compare what their sinks would get.",
)
@click.option(
    "--shadow-for",
    type=DurationType(),
    default="10s",
    show_default=True,
    metavar="DURATION",
    help="With --shadow: for how long rows are recorded.",
)
@click.option(
    "--keep-savepoints",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    metavar="N",
    help="Of how many upgrades of the job the savepoints are kept; older ones that `flowrun apply` took are deleted.",
)
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--continue", "goes_on", is_flag=True, help="Finish, or undo, an apply that was interrupted.")
@cluster_options
@click.pass_context
def apply(
    ctx: click.Context,
    file: Path | None,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    parallelism: int | None,
    to: str | None,
    healthy_within: int,
    healthy_for: int,
    allow_non_restored_state: bool,
    number: int | None,
    shadow: bool,
    shadow_for: int,
    keep_savepoints: int,
    dry_run: bool,
    yes: bool,
    goes_on: bool,
    cluster: ClusterOptions | None,
) -> None:
    """Put a new version of a pipeline in the place of the one that runs.

    The running job of that name is stopped with a savepoint, and the new version goes on from there, in the same place: in the process of
    `flowrun run`, or on the cluster. It is on trial first: it takes checkpoints and commits nothing. Once it is healthy it is accepted, and
    commits. If it is not by then, or fails, the old version goes on from the savepoint, as if nothing had been: no row is lost or written
    twice by a sink that is exactly once.

    With --shadow both versions are compared first, over the same rows, and nothing is written to their sinks. If they differ the command
    asks, and with --yes it ends with 1.

    Relative paths of tables start where the running job was started. Exit code 0: the new version runs, or nothing differs; 1: the old one
    goes on, or it failed; 2: the new version cannot take its place.
    """
    from flowrun.cli.versions.upgrading import UpgradeRequest, continue_upgrade, upgrade

    if (file is not None) + (number is not None) > 1:
        raise click.UsageError("give FILE or --version, not both")
    if file is None and to is None:
        raise click.UsageError(
            "name the pipeline's FILE, or a running job with --to" + (" and --version" if not goes_on else "")
        )
    if file is None and number is None and not goes_on:
        raise click.UsageError("name the pipeline's FILE, or a version of the history with --version")
    if healthy_for >= healthy_within:
        raise click.UsageError("--healthy-for is less than --healthy-within")
    request = UpgradeRequest(
        file,
        number,
        parse_assignments(variables, "--var"),
        all_overrides(overrides, parallelism),
        to,
        cluster,
        healthy_within,
        healthy_for,
        allow_non_restored_state,
        keep_savepoints,
        shadow_for if shadow else None,
    )
    stack = ctx.with_resource(ExitStack())
    if goes_on:
        ctx.exit(continue_upgrade(request, stack))
    ctx.exit(upgrade(request, stack, dry_run=dry_run, ask=None if yes or dry_run else _ask))


def _ask() -> None:
    """Ask whether to go on. Raises click.Abort: no; UsageError: nobody is there to answer."""
    if not sys.stdin.isatty():
        raise click.UsageError("nobody can answer here whether to go on: give --yes")
    click.confirm("Put it in the place of the version that runs?", abort=True, err=True)
