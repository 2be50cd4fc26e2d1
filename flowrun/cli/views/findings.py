"""Shows findings about a job: the worst first, each with its figures in plain sentences and what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from flowrun.core.printable import printable
from flowrun.masking import masked, masked_json

_COLORS = {"blocks": "red", "loses": "red", "slows": "yellow", "risks": "yellow", "informs": "cyan"}


def show(title: str, summary: str, found: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print findings, the worst first, as they came.

    Args:
        title: what they are about.
        summary: what they amount to.
        found: findings as JSON objects.
        as_json: print these.
    """
    if as_json:
        shown = {"about": title, "summary": summary, "findings": list(found)}
        click.echo(json.dumps(masked_json(shown), indent=2, ensure_ascii=False))
        return
    click.echo(safe(f"{title}: {summary}"))
    for number, finding in enumerate(found, 1):
        mark = click.style(finding["severity"], fg=_COLORS[finding["severity"]])
        click.echo(f"\n{number}. [{mark}] {click.style(safe(finding['title']), bold=True)}")
        click.echo(safe(f"   {finding['text']}"))
        if finding["remedy"]:
            click.echo(safe(f"   What to do: {finding['remedy']}" + ("" if finding["remedy"].endswith("?") else ".")))


def safe(text: str) -> str:
    """A text for the terminal, without secrets."""
    return printable(masked(text))
