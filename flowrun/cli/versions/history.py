"""`flowrun history JOB`: the versions of a pipeline that ran."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import click

from flowrun.cli.arguments import all_overrides, compile_options, parse_assignments
from flowrun.cli.cluster_arguments import ClusterOptions, cluster_options
from flowrun.cli.versions.finding import STATE_OPTION, Naming, history_named

if TYPE_CHECKING:
    from flowrun.runners.versions.history import VersionHistory
    from flowrun.runners.versions.records import PipelineVersion

_SECRET = re.compile(
    r"""(['"]?[\w.-]*(?:password|passwd|secret|token|credential|api[-_.]?key|access[-_.]?key|user-info|signature)[\w.-]*['"]?\s*[:=]\s*)"""
    r"""('(?:[^']|'')*'|"[^"]*"|[^\s,)}\]]+)""",
    re.IGNORECASE,
)


@click.command()
@click.argument("job")
@compile_options
@cluster_options
@STATE_OPTION
@click.option(
    "--text", "text_of", type=click.IntRange(1), metavar="N", help="Print the text of version N; secrets are masked."
)
@click.option("--plan", "plan_of", type=click.IntRange(1), metavar="N", help="Print the plan of version N, as JSON.")
@click.option("--json", "as_json", is_flag=True, help="All versions as JSON, without texts and plans.")
def history(
    job: str,
    variables: tuple[str, ...],
    overrides: tuple[str, ...],
    parallelism: int | None,
    cluster: ClusterOptions | None,
    state: str | None,
    text_of: int | None,
    plan_of: int | None,
    as_json: bool,
) -> None:
    """List the versions of a pipeline that ran, the newest last.

    JOB is a running job, by its name or the beginning of its id, a pipeline's file, or the name of a job that does not run. Versions are
    kept in the folder of its checkpoints, a hundred of them. `flowrun apply --to JOB --version N` goes back to one.
    """
    naming = Naming(parse_assignments(variables, "--var"), all_overrides(overrides, parallelism), cluster, state)
    found = history_named(job, naming)
    if text_of is not None:
        click.echo(without_secrets(found.version(text_of).text.text), nl=False)
    elif plan_of is not None:
        click.echo(json.dumps(found.version(plan_of).plan, indent=2, ensure_ascii=False))
    elif as_json:
        click.echo(json.dumps([_as_json(v) for v in found.versions()], indent=2, ensure_ascii=False))
    else:
        _show(found)


def without_secrets(text: str) -> str:
    """The text of a pipeline with `***` for what options that are called like secrets hold, and for passwords in URIs.

    >>> without_secrets("'password' = 'hunter2', 'url' = 'x'")
    "'password' = ***, 'url' = 'x'"
    >>> without_secrets("token: ${secret:TOKEN}")
    'token: ${secret:TOKEN}'
    """
    from flowrun.masking import MASK, learn_secrets_of_uri, masked

    def shown(found: re.Match[str]) -> str:
        value = found[2].strip("'\"")
        return found[0] if value.startswith("${") else f"{found[1]}{MASK}"

    for uri in re.findall(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^\s'\"]+", text):
        learn_secrets_of_uri(uri)
    return masked(_SECRET.sub(shown, text))


def _show(found: VersionHistory) -> None:
    from flowrun.cli.console import say
    from flowrun.cli.views.tables import show_table, utc_text
    from flowrun.runners.versions.records import first_line

    rows = [
        [
            str(v.number),
            utc_text(v.began_ms),
            v.outcome.value + (f": {first_line(v.reason)}" if v.reason else ""),
            v.text.file_name,
            v.restored_from or "",
        ]
        for v in found.versions()
    ]
    show_table(("VERSION", "BEGAN", "OUTCOME", "FILE", "FROM"), rows, ("VERSION",))
    upgrade = found.upgrade()
    if upgrade is not None and upgrade.phase.is_open:
        say(f"an apply of version {upgrade.new} is under way, or was interrupted: {upgrade.phase.value}")


def _as_json(version: PipelineVersion) -> dict[str, object]:
    return {
        "version": version.number,
        "began_ms": version.began_ms,
        "outcome": version.outcome.value,
        "reason": version.reason,
        "file": version.text.file_name,
        "restored_from": version.restored_from,
        "fingerprint": version.fingerprint,
        "modules": dict(version.modules),
        "variables": dict(version.text.variables),
        "overrides": dict(version.text.overrides),
    }
