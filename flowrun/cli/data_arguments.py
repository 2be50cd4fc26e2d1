"""Options of the commands that look at data which nobody has declared."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import click

from flowrun.cli.arguments import parse_assignments

F = TypeVar("F", bound=Callable[..., Any])

SAMPLE_ROWS = 10_000
WHERE = (
    "a file, a folder or a glob, local or a URI (s3://…), https://HOST/FILE, kafka://HOST:PORT/TOPIC, "
    "postgresql://USER@HOST/DATABASE/TABLE, or FILE/TABLE of SQLite or DuckDB"
)


def data_options(command: F) -> F:
    """Add the options that say how data is looked at; the command gets them as one argument `asked`, an `Asked` without a place.

    Raises:
        click.BadParameter: an option of the table is not of the form `NAME=VALUE`.
    """

    @functools.wraps(command)
    def with_asked(
        *args: Any,
        form: str | None,
        options: tuple[str, ...],
        registry: str | None,
        changes: bool,
        rows: int,
        **rest: Any,
    ) -> Any:
        from flowrun.runners.inference.sample import Asked

        given = {**_of_registry(registry), **parse_assignments(options, "--with")}
        return command(*args, asked=Asked("", form, rows, given, changes=changes), **rest)

    decorated: Any = with_asked
    for option in (
        click.option("--rows", type=click.IntRange(1), default=SAMPLE_ROWS, show_default=True, help="Rows to look at, about."),
        click.option("--changes", is_flag=True, help="Of a table of PostgreSQL: read its changes, too (postgres-cdc)."),
        click.option("--registry", metavar="URL", help="The schema registry of Avro messages."),
        click.option(
            "--with", "options", metavar="NAME=VALUE", multiple=True,
            help="An option of the table, such as properties.security.protocol=SASL_SSL; its value may be '${NAME}'. May be repeated.",
        ),
        click.option("--format", "form", metavar="FORMAT", help="Of files or messages; by default it is found out."),
    ):  # fmt: skip
        decorated = option(decorated)
    return cast(F, decorated)


def _of_registry(url: str | None) -> Mapping[str, str]:
    return {} if url is None else {f"{form}.url": url for form in ("avro-confluent", "debezium-avro-confluent")}
