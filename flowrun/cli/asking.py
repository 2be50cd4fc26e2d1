"""Asks what `flowrun init` needs to know."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flowrun.cli.arguments import parse_assignments
from flowrun.cli.data_arguments import WHERE
from flowrun.errors import FlowrunError

if TYPE_CHECKING:
    from flowrun.runners.inference.sample import Asked, Sample

_NO_ANSWER = "nobody answers: say where the project is to be, and from what data: flowrun init DIR --from PLACE"
_SERVERS = ("kafka://", "postgresql://", "postgres://", "s3://")


def ask_for_directory() -> Path:
    """Where the project is to be. Raises UsageError: nobody answers."""
    return Path(_asked("Directory of the project", "."))


def ask_for_data(asked: Asked) -> Sample | None:
    """A sample of the data that the project is to begin with; None: of none. It asks again after each problem.

    Args:
        asked: what is known; its place is not.

    Raises:
        UsageError: nobody answers.
    """
    from flowrun.runners.inference.places import sample_of

    click.echo(f"Which data does it begin with? {WHERE[0].upper()}{WHERE[1:]}; nothing: an example.")
    while True:
        place = _asked("Data", "").strip()
        if not place:
            return None
        options: dict[str, str] = {}
        if place.startswith(_SERVERS):
            options = _ask_for_options(place, asked.environment)
        try:
            return sample_of(replace(asked, place=place, options={**asked.options, **options}))
        except FlowrunError as error:
            click.echo(f"{click.style('error:', fg='red', bold=True)} {error}", err=True)


def _ask_for_options(place: str, environment: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    needs_password = place.startswith("postgres") and ":" not in place.partition("://")[2].rpartition("@")[0]
    if needs_password and not environment.get("PGPASSWORD"):
        password = _asked("Password, which is not written down (nothing: none)", "", hide=True)
        if password:
            found["password"] = password.replace("${", "$${")
    while True:
        text = _asked("Option NAME=VALUE (nothing: no further one)", "").strip()
        if not text:
            return found
        try:
            found |= parse_assignments([text], "option")
        except click.BadParameter as error:
            click.echo(error.message, err=True)


def _asked(question: str, default: str, *, hide: bool = False) -> str:
    try:
        return str(click.prompt(question, default=default, show_default=bool(default), hide_input=hide))
    except click.Abort:
        if os.isatty(0):
            raise  # Ctrl-C
        raise click.UsageError(_NO_ANSWER) from None
