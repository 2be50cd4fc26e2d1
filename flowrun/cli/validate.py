"""`flowrun validate [PATH…]`: every problem of pipelines, without running them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowrun.cli.arguments import all_overrides, compile_options, parse_assignments
from flowrun.cli.console import EXIT_BAD_INPUT, show_diagnostics
from flowrun.cli.reports import (
    FORMAT_OPTION,
    RuleText,
    problem_json,
    reported,
    show_github,
    show_json,
    show_sarif,
)
from flowrun.cli.user_code import only_names_user_code, spare_pandas
from flowrun.errors import Diagnostic, Severity

if TYPE_CHECKING:
    from flowrun.runners.projects.members import Member, Members

RULES = {
    "error": RuleText("The pipeline cannot run.", "Its text has an error, which `flowrun validate` explains."),
    "warning": RuleText(
        "Something the pipeline says may not be meant.", "It runs, and `flowrun validate` warns of it."
    ),
    "project": RuleText(
        "The pipelines of the project do not fit together.",
        "Two of them own one table or have one name, or they read each other in a circle.",
    ),
}


@click.command()
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, metavar="[PATH]…")
@compile_options
@FORMAT_OPTION
@click.pass_context
def validate(
    ctx: click.Context,
    paths: tuple[Path, ...],
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    parallelism: int | None,
    form: str,
) -> None:
    """Check pipelines without running them; reports all problems.

    PATH is a pipeline, a folder of pipelines, or a project; without one, the project around here. For a valid pipeline it is said what is
    promised of each sink after a failure. A program (job.py) is run up to its first env.execute().
    """
    spare_pandas(ctx, wanted=not only_names_user_code(paths))
    from flowrun.runners.projects.members import compile_members, members_of

    given, values = parse_assignments(variables, "--var"), all_overrides(overrides, parallelism)
    members = members_of(paths)
    alone = len(paths) == 1 and members.files == paths
    checked: tuple[Member, ...]
    together: list[Diagnostic] = []
    if alone:
        checked = (_checked_alone(paths[0], given, values),)
    else:
        checked = compile_members(members.files, given, values, missing_files=True)
        checked, together = _of_all(checked, members, given)
    _show(checked, together, form, alone=alone)
    if together or any(member.compiled is None for member in checked):
        ctx.exit(EXIT_BAD_INPUT)


def _checked_alone(file: Path, variables: Mapping[str, str], overrides: Mapping[str, str]) -> Member:
    """A single pipeline, whose files must be there; what is no problem of its text is raised."""
    from flowrun.errors import PipelineError
    from flowrun.runners.compile import compile_file
    from flowrun.runners.projects.members import Member

    try:
        compiled = compile_file(file, variables, overrides)
    except PipelineError as error:
        return Member(file, None, error.diagnostics)
    return Member(file, compiled, compiled.warnings, compiled.guarantees)


def _of_all(
    checked: tuple[Member, ...], members: Members, variables: Mapping[str, str]
) -> tuple[tuple[Member, ...], list[Diagnostic]]:
    """The pipelines with the warnings that matter where there are many, and what is wrong with them together."""
    from flowrun.runners.projects.members import problems_together, with_missing_files, without_needless_warnings

    checked = with_missing_files(without_needless_warnings(checked, variables))
    return checked, problems_together(checked) if members.project is not None else []


def _show(checked: tuple[Member, ...], together: list[Diagnostic], form: str, *, alone: bool) -> None:
    problems = [
        *(reported(p, p.severity.value) for p in dict.fromkeys(p for member in checked for p in member.problems)),
        *(reported(p, "project") for p in together),
    ]
    match form:
        case "github":
            show_github(problems)
        case "sarif":
            show_sarif(problems, RULES)
        case "json":
            documents = [_as_json(member) for member in checked]
            if alone:
                show_json(documents[0])
                return
            files = [{"file": str(m.file), **document} for m, document in zip(checked, documents, strict=True)]
            valid = not together and all(member.compiled is not None for member in checked)
            show_json({"valid": valid, "pipelines": files, "problems": [_problem(p) for p in together]})
        case _:
            told: set[Diagnostic] = set()
            for member in checked:
                show_diagnostics([p for p in member.problems if p not in told])
                told |= set(member.problems)
                if member.compiled is not None:
                    click.echo(f"{member.file}: valid")
                    for guarantee in member.guarantees:
                        click.echo(f"  {guarantee}")
            show_diagnostics(together)
            if not alone:
                click.echo(_summary(checked, problems_of_all=len(together)))


def _summary(checked: tuple[Member, ...], problems_of_all: int) -> str:
    from flowrun.cli.views.figures import counted_text

    wrong = sum(member.compiled is None for member in checked)
    warnings = sum(p.severity is Severity.WARNING for member in checked for p in member.problems)
    parts = [f"{counted_text(len(checked), 'pipeline')}: {len(checked) - wrong} valid"]
    parts += [f"{wrong} with errors"] if wrong else []
    parts += [counted_text(warnings, "warning")] if warnings else []
    parts += [f"{counted_text(problems_of_all, 'error')} of all together"] if problems_of_all else []
    return ", ".join(parts)


def _as_json(member: Member) -> dict[str, object]:
    return {
        "valid": member.compiled is not None,
        "problems": [_problem(p) for p in member.problems],
        "delivery": [g.to_json() for g in member.guarantees],
    }


def _problem(problem: Diagnostic) -> dict[str, object]:
    return problem_json(problem.severity, problem.message, problem.hint, problem.location)
