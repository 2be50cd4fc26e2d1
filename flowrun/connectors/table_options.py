"""Which format a table may have, and which options: those of its connector and, under the format's name, the format's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from flowrun.api.connector import Connector
from flowrun.connectors.formats.registry import cannot_carry, format_names, prefixed_options
from flowrun.core.options import Option
from flowrun.errors import OptionError, did_you_mean

VALUE_FORMAT = "value.format"
"""What the format of a table is called, too, if its records are messages with keys."""
KEY_FORMAT = "key.format"
"""The format of these keys."""


def check_format(connector: Connector, name: str | None) -> None:
    """Raise OptionError unless `name` is a format that the connector can use, or None where it needs none."""
    if name is None:
        if connector.formats and connector.needs_format:
            raise OptionError(
                "format", f"connector '{connector.name}' needs a format", hint="one of " + ", ".join(connector.formats)
            )
    elif not connector.formats:
        raise OptionError(
            "format", f"connector '{connector.name}' takes no format", hint="its rows have a layout of their own"
        )
    elif name not in connector.formats:
        if name in format_names():
            raise OptionError(
                "format", cannot_carry(connector.name, name), hint="one of " + ", ".join(connector.formats)
            )
        raise OptionError(
            "format",
            f"connector '{connector.name}' has no format '{name}'",
            hint=did_you_mean(name, connector.formats),
        )


def source_options(
    connector: Connector, format_name: str | None, given: Mapping[str, object] | None = None
) -> tuple[Option, ...]:
    """All options that a table may be given as a source.

    Args:
        connector: of the table.
        format_name: of the table.
        given: the table's options, which may decide about others (`Connector.source_options_for`); None: the options of any table.
    """
    follow = connector.source_options_for
    own = connector.source_options if given is None or follow is None else follow(given)
    return (*own, *options_of_formats(connector, format_name))


def options_of_formats(connector: Connector, format_name: str | None) -> Iterable[Option]:
    """The options of a table's format, and of those that the keys of its messages may have."""
    of_value = () if format_name is None else prefixed_options(format_name)
    yield from of_value
    if connector.message_keys:
        yield from (replace(o, name=f"value.{o.name}") for o in of_value)
        yield from (replace(o, name=f"key.{o.name}") for name in connector.formats for o in prefixed_options(name))
