"""`flowrun lint [PATH…]`: what is right in pipelines, but seldom meant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowrun.cli.arguments import all_overrides, compile_options, parse_assignments
from flowrun.cli.reports import (
    FORMAT_OPTION,
    Reported,
    RuleText,
    reported,
    show_github,
    show_json,
    show_sarif,
)
from flowrun.cli.user_code import only_names_user_code, spare_pandas

if TYPE_CHECKING:
    from flowrun.errors import Diagnostic
    from flowrun.runners.lint.rule import LintFinding, LintRule
    from flowrun.runners.projects.members import Member

_SEVERAL = "RULE[,RULE]…"


@click.command()
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, metavar="[PATH]…")
@click.option("--explain", "explained", metavar="RULE", help="Print what a rule finds, and why; `all`: of each.")
@click.option("--select", multiple=True, metavar=_SEVERAL, help="Only these rules.")
@click.option("--ignore", multiple=True, metavar=_SEVERAL, help="All but these rules.")
@compile_options
@FORMAT_OPTION
@click.pass_context
def lint(
    ctx: click.Context,
    paths: tuple[Path, ...],
    explained: str | None,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    parallelism: int | None,
    form: str,
) -> None:
    """Find what is right in pipelines, but seldom meant: state without limit, joins that multiply rows, and the like.

    PATH is a pipeline, a folder of pipelines, or a project; without one, the project around here. A comment silences a rule in its line or
    the next one: `# flowrun: ignore RULE` in YAML, `-- flowrun: ignore RULE` in SQL.

    Exits with 1 if something is found, with 2 if a pipeline has errors or the project does not fit together.
    """
    from flowrun.cli.console import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_OK

    if explained is not None:
        _explain(explained)
        return
    spare_pandas(ctx, wanted=not only_names_user_code(paths))
    from flowrun.runners.lint.rules import rules_named
    from flowrun.runners.projects.members import compile_members, errors_of, members_of, problems_together

    rules = rules_named(_names(select), _names(ignore))
    members = members_of(paths)
    given, values = parse_assignments(variables, "--var"), all_overrides(overrides, parallelism)
    compiled = compile_members(members.files, given, values, missing_files=True)
    errors = errors_of(compiled)
    errors += problems_together(compiled) if members.project is not None else []
    found: list[LintFinding] = []
    unknown: list[Path] = []
    for member in compiled:
        _look_at(member, rules, found, errors, unknown)
    _show(errors, found, rules, form, files=len(members.files), unknown=unknown)
    ctx.exit(EXIT_BAD_INPUT if errors else EXIT_FAILED if found else EXIT_OK)


def _look_at(
    member: Member, rules: tuple[LintRule, ...], found: list[LintFinding], errors: list[Diagnostic], unknown: list[Path]
) -> None:
    """Add what is found in a pipeline, what is wrong with its comments, or that nothing is known of it."""
    from flowrun.errors import PipelineError
    from flowrun.runners.compile import CompiledPipeline
    from flowrun.runners.lint.rules import lint as lint_pipeline

    if not isinstance(member.compiled, CompiledPipeline):
        unknown += [member.file] if member.compiled is not None else []
        return
    try:
        found += (f for f in lint_pipeline(member.compiled, rules) if f not in found)
    except PipelineError as error:
        errors += error.diagnostics


def _names(given: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.strip() for text in given for name in text.split(",") if name.strip())


def _explain(name: str) -> None:
    from flowrun.runners.lint.rules import RULES, rules_named

    for number, rule in enumerate(RULES if name == "all" else rules_named((name,), ())):
        if number:
            click.echo()
        click.echo(f"{click.style(rule.name, bold=True)}: {rule.summary}\n")
        click.echo(click.wrap_text(rule.explanation, 100))


def _show(
    errors: list[Diagnostic],
    found: list[LintFinding],
    rules: tuple[LintRule, ...],
    form: str,
    *,
    files: int,
    unknown: list[Path],
) -> None:
    problems = [*(reported(p, "error") for p in errors), *map(_reported, found)]
    match form:
        case "github":
            show_github(problems)
        case "sarif":
            texts = {rule.name: RuleText(rule.summary, rule.explanation) for rule in rules}
            error = RuleText("The pipeline cannot run.", "`flowrun validate` explains the errors of its text.")
            show_sarif(problems, {**texts, "error": error})
        case "json":
            show_json({"findings": [p.to_json() for p in problems], "not_looked_at": list(map(str, unknown))})
        case _:
            _show_text(errors, found, files=files, unknown=unknown)


def _reported(finding: LintFinding) -> Reported:
    from flowrun.errors import Severity

    return Reported(finding.rule, Severity.WARNING, finding.message, finding.remedy, finding.location)


def _show_text(errors: list[Diagnostic], found: list[LintFinding], *, files: int, unknown: list[Path]) -> None:
    from flowrun.cli.console import say, show_diagnostics
    from flowrun.cli.views.figures import counted_text
    from flowrun.errors import Diagnostic, Severity
    from flowrun.frontend.text_files import with_source_line

    show_diagnostics(errors)
    for f in found:
        shown = Diagnostic(f"{f.message} [{f.rule}]", f.location, hint=f.remedy, severity=Severity.WARNING)
        show_diagnostics([with_source_line(shown)])
    for file in unknown:
        say(f"note: {file} is a program: nothing is known of it before it runs")
    where = f"in {counted_text(files, 'pipeline')}"
    nothing = "nothing" if not errors else "nothing else"
    click.echo(f"{counted_text(len(found), 'finding') if found else nothing} {where}")
