"""Problems of pipelines for other programs: as JSON, as annotations of GitHub, and as SARIF 2.1.0 for code scanning."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from flowrun import __version__
from flowrun.core.record import record
from flowrun.errors import Diagnostic, Location, Severity
from flowrun.frontend.trees.overrides import OVERRIDE_FILE
from flowrun.masking import masked, masked_json

FORMATS = ("text", "json", "github", "sarif")
FORMAT_OPTION = click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="github: annotations of a workflow; sarif: a report for code scanning.",
)
SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_GITHUB_COMMANDS = {"error": "error", "warning": "warning"}


@record
class Reported:
    """One problem.

    Attributes:
        rule: what kind it is of.
        severity: an error, or a warning.
        message: one line or more.
        hint: what to do; None: the message says it.
        location: None: it has none.
    """

    rule: str
    severity: Severity
    message: str
    hint: str | None
    location: Location | None

    @property
    def text(self) -> str:
        """Message and remedy."""
        return self.message if self.hint is None else f"{self.message}\n{self.hint}"

    def to_json(self) -> dict[str, object]:
        """All of it, with the place in parts."""
        return {"rule": self.rule, **problem_json(self.severity, self.message, self.hint, self.location)}


@record
class RuleText:
    """What a rule is, for whoever reads a report."""

    summary: str
    explanation: str


def reported(problem: Diagnostic, rule: str) -> Reported:
    """A problem of a pipeline's text; one of a value of `--set` has no place in a file."""
    at = problem.location
    in_file = at is not None and not at.file.startswith(OVERRIDE_FILE)
    return Reported(rule, problem.severity, problem.message, problem.hint, at if in_file else None)


def problem_json(severity: Severity, message: str, hint: str | None, at: Location | None) -> dict[str, object]:
    """A problem as JSON."""
    return {
        "severity": severity.value,
        "message": message,
        "hint": hint,
        "file": at.file if at else None,
        "line": at.line if at else None,
        "column": at.column if at else None,
        "length": at.length if at else None,
    }


def show_json(document: Mapping[str, object]) -> None:
    """Print a document without secrets."""
    click.echo(json.dumps(masked_json(document), indent=2, ensure_ascii=False))


def show_github(problems: Iterable[Reported]) -> None:
    """Print workflow commands, which GitHub shows as annotations of the lines.

    See https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions.
    """
    for problem in problems:
        click.echo(masked(github_command(problem)))


def github_command(problem: Reported) -> str:
    r"""The workflow command of a problem.

    >>> github_command(Reported("a-rule", Severity.WARNING, "50% of\nit", "do, so", Location("p/a.sql", 3, 5, 2)))
    '::warning file=p/a.sql,line=3,col=5,endColumn=7,title=a-rule::50%25 of%0Ait%0Ado, so'
    """
    properties: dict[str, object] = {}
    if (at := problem.location) is not None:
        properties = {"file": _path(at.file), "line": at.line, "col": at.column, "endColumn": at.column + at.length}
    properties["title"] = problem.rule
    given = ",".join(f"{name}={_escaped(str(value), ':', ',')}" for name, value in properties.items())
    return f"::{_GITHUB_COMMANDS[problem.severity.value]} {given}::{_escaped(problem.text)}"


def _escaped(text: str, *further: str) -> str:
    for character in ("%", "\r", "\n", *further):
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def show_sarif(problems: Sequence[Reported], rules: Mapping[str, RuleText]) -> None:
    """Print a log of SARIF 2.1.0."""
    show_json(sarif_log(problems, rules))


def sarif_log(problems: Sequence[Reported], rules: Mapping[str, RuleText]) -> dict[str, Any]:
    """A log of SARIF 2.1.0 (OASIS) with one run.

    Args:
        problems: in order.
        rules: the rule of each, and others that were looked for.
    """
    numbers = {name: number for number, name in enumerate(rules)}
    driver = {
        "name": "flowrun",
        "version": __version__,
        "rules": [
            {
                "id": name,
                "shortDescription": {"text": rule.summary},
                "fullDescription": {"text": rule.explanation},
                "help": {"text": rule.explanation},
            }
            for name, rule in rules.items()
        ],
    }
    results = [
        {
            "ruleId": p.rule,
            "ruleIndex": numbers[p.rule],
            "level": p.severity.value,
            "message": {"text": p.text},
            "locations": [] if p.location is None else [_sarif_location(p.location)],
        }
        for p in problems
    ]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def _sarif_location(at: Location) -> dict[str, Any]:
    path = _path(at.file)
    artifact = {"uri": quote(path)} if not Path(path).is_absolute() else {"uri": Path(path).as_uri()}
    region = {"startLine": at.line, "startColumn": at.column, "endColumn": at.column + at.length}
    return {"physicalLocation": {"artifactLocation": artifact, "region": region}}


def _path(file: str) -> str:
    """A file as seen from the working directory, which is that of the repository where reports are made."""
    path = Path(file)
    here = Path.cwd()
    return (path.relative_to(here) if path.is_absolute() and path.is_relative_to(here) else path).as_posix()
