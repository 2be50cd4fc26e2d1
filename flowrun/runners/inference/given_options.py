"""Options of the table that is proposed: what they are now, and how they are written down, which is never with a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from flowrun.connectors.registry import connector_named
from flowrun.connectors.table_options import source_options
from flowrun.core.options import Options, parse_options
from flowrun.core.record import record
from flowrun.errors import PipelineError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.references import REFERENCE, References
from flowrun.frontend.source_text import SourceText
from flowrun.masking import has_credentials, learn_secret, learn_secrets_of_uri
from flowrun.runners.inference.sample import Asked

_VARIABLES = {
    "password": "PGPASSWORD",
    "properties.sasl.password": "KAFKA_PASSWORD",
    "s3.access-key": "AWS_ACCESS_KEY_ID",
    "s3.secret-key": "AWS_SECRET_ACCESS_KEY",
    "s3.session-token": "AWS_SESSION_TOKEN",
}
"""Secret option → the variable that usually holds it."""


@record(eq=False)
class TableOptions:
    """The options of a table.

    Attributes:
        values: as the connector takes them now.
        written: as they are written down, in order; a secret is a variable.
        variables: the names of those whose values are secret.
    """

    values: Options
    written: tuple[tuple[str, str], ...]
    variables: tuple[str, ...]


def table_options(asked: Asked, connector: str, form: str | None, own: Mapping[str, str]) -> TableOptions:
    """The options of a table that reads what is asked about.

    Args:
        asked: with the options that the user gives, which count before `own`.
        connector: of the table.
        form: its format; None: it has none, or it is not known yet.
        own: options that the place tells, as they are.

    Raises:
        PipelineError: the connector has no such option, a value is none of its, or a variable is not set.
    """
    declared = source_options(connector_named(connector), form)
    given = {name: filled(name, text, asked.environment) for name, text in asked.options.items()}
    values = {**own, **given}
    parsed, errors = parse_options(declared, values, f"connector '{connector}'")
    if errors:
        raise PipelineError.of(errors[0].message, errors[0].hint)
    written, variables = [], []
    for name, value in values.items():
        is_secret = any(option.secret and option.matches(name) for option in declared) or has_credentials(value)
        text, names = _as_written(name, value, asked.options.get(name), is_secret=is_secret)
        written.append((name, text))
        variables += names
    return TableOptions(parsed, tuple(written), tuple(dict.fromkeys(variables)))


def _as_written(name: str, value: str, text: str | None, *, is_secret: bool) -> tuple[str, list[str]]:
    """(what is written for an option, the variables in it that are secret)."""
    if is_secret:
        learn_secret(value)
        learn_secrets_of_uri(value)
    if text is not None and "${" in text:
        names = [m[1].partition(":-")[0] for m in REFERENCE.finditer(text) if m[1] and not m[1].startswith("secret:")]
        return text, names if is_secret else []
    if is_secret:
        variable = _VARIABLES.get(name) or _variable(name)
        return f"${{{variable}}}", [variable]
    return literal(value), []


def _variable(name: str) -> str:
    """A name for a variable that no other program has.

    >>> _variable("avro-confluent.url"), _variable("path")
    ('AVRO_CONFLUENT_URL', 'TABLE_PATH')
    """
    found = re.sub(r"\W+", "_", name).upper()
    return found if "_" in found else f"TABLE_{found}"


def literal(value: str) -> str:
    """A text as pipelines have it, in which no variable is meant.

    >>> literal("a${b}")
    'a$${b}'
    """
    return value.replace("${", "$${")


def filled(name: str, text: str, environment: Mapping[str, str]) -> str:
    """The value of an option in which `${NAME}` may stand.

    Raises:
        PipelineError: a variable is not set.

    >>> filled("password", "${PW}, $${PW}", {"PW": "x"})
    'x, ${PW}'
    """
    source = SourceText(f"option '{name}'", text)
    diagnostics = Diagnostics(source)
    references = References({}, environment, Path())
    parts, position = [], 0
    for match in REFERENCE.finditer(text):
        if match.start() < position:
            continue  # the `${` behind an escaping `$`
        parts.append(text[position : match.start()])
        if match[1] is None:
            parts.append("${")
            position = match.end() + 2
        else:
            found = references.value(match, source.locate(match.start(), match.end()), diagnostics)
            parts.append("" if found is None else found.text)
            position = match.end()
    diagnostics.raise_if_errors()
    return "".join((*parts, text[position:]))
