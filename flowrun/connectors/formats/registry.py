"""The registry of formats: a table of flowrun's own, and entry points `flowrun.formats` for those of other packages.

A format's module is imported when the format is first used.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.metadata

from flowrun.api.connector import FormatOptions
from flowrun.api.format import FileFormat, Format, RecordFormat
from flowrun.core.options import Option, OptionType
from flowrun.errors import InternalError, OptionError, did_you_mean

ENTRY_POINT_GROUP = "flowrun.formats"

BUILT_IN = {
    "canal-json": "flowrun.connectors.formats.canal_json:FORMAT",
    "csv": "flowrun.connectors.formats.csv_format:FORMAT",
    "debezium-json": "flowrun.connectors.formats.debezium_json:FORMAT",
    "json": "flowrun.connectors.formats.json_format:FORMAT",
    "maxwell-json": "flowrun.connectors.formats.maxwell_json:FORMAT",
    "ogg-json": "flowrun.connectors.formats.ogg_json:FORMAT",
    "parquet": "flowrun.connectors.formats.parquet_format:FORMAT",
    "raw": "flowrun.connectors.formats.raw:FORMAT",
}
"""Name → `module:attribute` of a `Format`."""

ERROR_OPTIONS = (
    Option(
        "format.on-error",
        OptionType.ENUM,
        "What to do with a record (not: a Parquet file) that is no row of the schema: stop, leave it out and count it, or keep it aside.",
        default="fail",
        choices=("fail", "skip", "dead-letter"),
    ),
    Option(
        "format.dead-letter.path",
        OptionType.STRING,
        "Folder for bad records (JSON lines with file, offset, reason and the raw bytes); needed with on-error = dead-letter.",
    ),
)
"""The options of every source that decodes records, in all formats."""


def format_named(name: str) -> Format:
    """The format with this name.

    Raises:
        OptionError: there is no format of this name; the message lists near matches.
        InternalError: two packages registered the name, or the object that is registered is no format.
    """
    target = _targets().get(name)
    if target is None:
        raise OptionError("format", f"there is no format '{name}'", hint=did_you_mean(name, _targets()))
    return _load(name, target)


def record_format_named(name: str, user: str) -> RecordFormat:
    """The format with this name, which must decode single records.

    Args:
        name: of the format.
        user: the connector that needs such a format, for the message.

    Raises:
        OptionError: there is no format of this name, or it reads whole files.
    """
    found = format_named(name)
    if not isinstance(found, RecordFormat):
        raise OptionError("format", f"{user} carries single records, but format '{name}' is one of whole files")
    return found


def format_names() -> tuple[str, ...]:
    """All names, sorted."""
    return tuple(sorted(_targets()))


def format_options(name: str) -> FormatOptions:
    """A format's options as it declares them, without the prefix of their names. It raises the errors of `format_named`."""
    found = format_named(name)
    return FormatOptions(found.name, found.summary, found.options)


def prefixed_options(name: str) -> tuple[Option, ...]:
    """A format's options as users write them, e.g. `json.ignore-parse-errors`. It raises the errors of `format_named`."""
    return tuple(dataclasses.replace(o, name=f"{name}.{o.name}") for o in format_named(name).options)


@functools.cache
def _targets() -> dict[str, str]:
    targets = dict(BUILT_IN)
    for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        if targets.setdefault(point.name, point.value) != point.value:
            raise InternalError(f"format '{point.name}' is registered twice: {targets[point.name]} and {point.value}")
    return targets


@functools.cache
def _load(name: str, target: str) -> Format:
    module, _, attribute = target.partition(":")
    found = getattr(importlib.import_module(module), attribute, None)
    if not isinstance(found, RecordFormat | FileFormat):
        raise InternalError(f"format '{name}': {target} is no format")
    return found
