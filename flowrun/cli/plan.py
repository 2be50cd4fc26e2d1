"""`flowrun plan [FILE] --from-savepoint PATH`: what would become of the state if a pipeline went on from a savepoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowrun.cli.arguments import (
    ALLOW_NON_RESTORED,
    FROM_SAVEPOINT,
    FUNCTIONS_FROM,
    all_overrides,
    compile_options,
    parse_assignments,
)
from flowrun.cli.console import EXIT_BAD_INPUT, show_diagnostics

if TYPE_CHECKING:
    from flowrun.runtime.checkpoint.comparison import Comparison, OperatorComparison

_COLORS = {
    "kept": "green",
    "new": "cyan",
    "changed": "yellow",
    "dropped": "red",
    "incompatible": "red",
    "error": "red",
    "warning": "yellow",
}


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@compile_options
@FROM_SAVEPOINT
@FUNCTIONS_FROM
@ALLOW_NON_RESTORED
@click.option("--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def plan(
    ctx: click.Context,
    file: Path | None,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    parallelism: int | None,
    from_savepoint: str,
    functions_from: Path | None,
    allow_non_restored_state: bool,
    output: str,
) -> None:
    """Show what would become of each operator's state if a pipeline went on from a savepoint.

    Runs nothing and changes nothing; the pipeline that uses the folder may be running. Without FILE the pipeline is the one kept in the
    savepoint: of use after flowrun itself was upgraded; its Python functions are imported from --functions-from alone.

    Exit code 0: it can go on; 2: it cannot.
    """
    from flowrun.cli.restoring import pipeline_and_state
    from flowrun.runtime.checkpoint.compatibility import compare
    from flowrun.state.storage.leases import holding_leases

    ctx.with_resource(holding_leases())
    given, values = parse_assignments(variables, "--var"), all_overrides(overrides, parallelism)
    compiled, snapshot = pipeline_and_state(
        file, from_savepoint, given, values, functions_from=functions_from, runs=False, quiet=True
    )
    comparison = compare(snapshot.metadata, compiled.job_graph)
    if output == "json":
        shown = {"from": snapshot.folder, **comparison_json(comparison, allow_non_restored_state)}
        click.echo(json.dumps(shown, indent=2, ensure_ascii=False))
    else:
        show_diagnostics(compiled.warnings)
        click.echo(snapshot.folder)
        for line in comparison.lines(allow_non_restored_state):
            click.echo(colored(line))
    if comparison.problems_unless(allow_non_restored_state):
        ctx.exit(EXIT_BAD_INPUT)


def colored(line: str) -> str:
    """The line with its first word in the colour of what it says."""
    word = line.split(maxsplit=1)[0].rstrip(":") if line.startswith("  ") else ""
    return line.replace(word, click.style(word, fg=_COLORS[word]), 1) if word in _COLORS else line


def comparison_json(comparison: Comparison, allow: bool = False) -> dict[str, object]:
    """A comparison as JSON values; `allow`: state of operators that are no longer there may be left behind."""
    return {
        "can_resume": not comparison.problems_unless(allow),
        "title": comparison.title,
        "operators": [_operator(o) for o in comparison.operators],
        "problems": [
            {"message": p.message, "hint": p.hint, "allowed": p.loses_state and allow} for p in comparison.all_problems
        ],
        "warnings": list(comparison.warnings),
    }


def _operator(operator: OperatorComparison) -> dict[str, object]:
    before, after = operator.before, operator.after
    return {
        "operator_id": operator.operator_id,
        "name": operator.name,
        "uid": operator.uid,
        "change": operator.change.value,
        "parallelism_before": before and before.parallelism,
        "parallelism_after": after and after.parallelism,
        "max_parallelism_before": before.max_parallelism if before and operator.keyed else None,
        "max_parallelism_after": after.max_parallelism if after and operator.keyed else None,
        "bytes": operator.size,
        "tables": [{"name": t.name, "keyed": t.keyed, "bytes": t.size, "rows": t.rows} for t in operator.tables],
        "additions": list(operator.additions),
        "problems": [p.message for p in operator.problems],
        "notes": list(operator.notes),
    }
