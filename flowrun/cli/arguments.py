"""Arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def parse_assignments(given: Iterable[str], option: str) -> dict[str, str]:
    """`K=V` texts as a mapping; the last one of a key wins.

    Raises:
        click.BadParameter: a text has no `=` or no key.

    >>> parse_assignments(["DIR=/data", "N=3"], "--var")
    {'DIR': '/data', 'N': '3'}
    """
    pairs: dict[str, str] = {}
    for text in given:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise click.BadParameter(f"'{text}' is not of the form NAME=VALUE", param_hint=option)
        pairs[key] = value
    return pairs


def pipeline_arguments(command: F) -> F:
    """FILE, --var, --set and --parallelism, as `run`, `validate` and `explain` take them."""
    for decorate in (
        click.option(
            "-p", "--parallelism", type=click.IntRange(1), help="Parallelism of steps that do not set their own."
        ),
        click.option(
            "--set",
            "overrides",
            multiple=True,
            metavar="PATH=VALUE",
            help="Override a value, e.g. settings.batch_rows=1024.",
        ),
        click.option("--var", "variables", multiple=True, metavar="K=V", help="Fill ${K} in the file."),
        click.argument("file", type=click.Path(path_type=Path)),
    ):
        command = decorate(command)
    return command


def all_overrides(overrides: Iterable[str], parallelism: int | None) -> dict[str, str]:
    """`--set` values with `--parallelism` as one more."""
    values = parse_assignments(overrides, "--set")
    if parallelism is not None:
        values["settings.parallelism"] = str(parallelism)
    return values
