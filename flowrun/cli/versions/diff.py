"""`flowrun diff OLD NEW`: what differs in meaning between two versions of a pipeline, and what becomes of state."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from flowrun.cli.arguments import all_overrides, compile_options, parse_assignments
from flowrun.cli.cluster_arguments import ClusterOptions, cluster_options
from flowrun.cli.versions.finding import STATE_OPTION, NamedVersion, Naming, version_named

if TYPE_CHECKING:
    from flowrun.runners.versions.plan_difference import Difference
    from flowrun.runtime.checkpoint.comparison import Comparison

_DIFFERENT = 1


@click.command()
@click.argument("old")
@click.argument("new")
@compile_options
@cluster_options
@STATE_OPTION
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def diff(
    ctx: click.Context,
    old: str,
    new: str,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    parallelism: int | None,
    cluster: ClusterOptions | None,
    state: str | None,
    output: str,
) -> None:
    """Say what differs in meaning between two versions of a pipeline, and what would become of each operator's state.

    OLD and NEW are files, or JOB@N for version N of a job's history (see flowrun history), or JOB for the last one. The optimised plans are
    compared: layout, comments and order of statements make no difference.

    Exit code 0: nothing differs; 1: something does; 2: a version has errors, or is not there.
    """
    naming = Naming(parse_assignments(variables, "--var"), all_overrides(overrides, parallelism), cluster, state)
    before, after = version_named(old, naming), version_named(new, naming)
    differences = _differences(before, after)
    comparison = _state(before, after)
    if output == "json":
        click.echo(json.dumps(_as_json(differences, comparison), indent=2, ensure_ascii=False))
    else:
        _show(before, after, differences, comparison)
    ctx.exit(_DIFFERENT if differences else 0)


def _differences(before: NamedVersion, after: NamedVersion) -> list[Difference]:
    from flowrun.errors import PipelineError
    from flowrun.graph.fingerprint import fingerprint
    from flowrun.runners.versions.plan_difference import hidden_difference, plan_differences

    one, two = before.version, after.version
    if one.plan is None or two.plan is None:
        unknown = before if one.plan is None else after
        raise PipelineError.of(f"the plan of {unknown.title} was not kept", "compare the files themselves")
    if before.is_file_name and after.is_file_name:  # files that are called differently
        found = plan_differences({**one.plan, "name": None}, {**two.plan, "name": None}, one.modules, two.modules)
    else:
        found = plan_differences(one.plan, two.plan, one.modules, two.modules)
    if found or isinstance(before.job_graph, str) or isinstance(after.job_graph, str):
        return found
    return hidden_difference(fingerprint(before.job_graph), fingerprint(after.job_graph))


def _state(before: NamedVersion, after: NamedVersion) -> Comparison | str:
    """What becomes of state; a text: why it cannot be told."""
    from flowrun.runners.versions.imagined_savepoint import imagined_savepoint
    from flowrun.runtime.checkpoint.compatibility import compare

    one, two = before.job_graph, after.job_graph
    if isinstance(one, str):
        return f"{before.title} cannot be compiled: {one}"
    if isinstance(two, str):
        return f"{after.title} cannot be compiled: {two}"
    return compare(imagined_savepoint(one, two), two)


def _show(
    before: NamedVersion, after: NamedVersion, differences: list[Difference], comparison: Comparison | str
) -> None:
    from flowrun.cli.console import say
    from flowrun.cli.plan import colored
    from flowrun.cli.versions.difference_text import difference_lines

    if not differences:
        click.echo(f"{before.title} and {after.title} mean the same")
        return
    click.echo(f"- {before.title}\n+ {after.title}")
    for line in difference_lines(differences):
        click.echo(line)
    if isinstance(comparison, str):
        say(f"what becomes of state is not known: {comparison}")
        return
    click.echo("state, if there is some:")
    for line in comparison.lines()[1:]:
        click.echo(colored(line))


def _as_json(differences: list[Difference], comparison: Comparison | str) -> dict[str, object]:
    from flowrun.cli.plan import comparison_json
    from flowrun.cli.versions.difference_text import differences_json

    state = None if isinstance(comparison, str) else comparison_json(comparison)
    return {"differ": bool(differences), "differences": differences_json(differences), "state": state}
