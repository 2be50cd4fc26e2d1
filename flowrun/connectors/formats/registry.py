"""The registry of formats: a table of flowrun's own, and entry points `flowrun.formats` for those of other packages.

A format's module is imported when the format is first used.
"""

from __future__ import annotations

import dataclasses
import functools

from flowrun.api.connector import FormatOptions
from flowrun.api.format import FileFormat, Format, RecordFormat
from flowrun.connectors.registered import loaded, registered
from flowrun.core.options import Option, Options, OptionType
from flowrun.core.row_errors import OnError
from flowrun.errors import InternalError, OptionError, did_you_mean

ENTRY_POINT_GROUP = "flowrun.formats"

BUILT_IN = {
    "arrow": "flowrun.connectors.formats.arrow_format:FORMAT",
    "avro": "flowrun.connectors.formats.avro.avro_format:FORMAT",
    "avro-confluent": "flowrun.connectors.formats.avro.confluent:FORMAT",
    "canal-json": "flowrun.connectors.formats.canal_json:FORMAT",
    "csv": "flowrun.connectors.formats.csv_format:FORMAT",
    "debezium-avro-confluent": "flowrun.connectors.formats.avro.debezium:FORMAT",
    "debezium-json": "flowrun.connectors.formats.debezium_json:FORMAT",
    "json": "flowrun.connectors.formats.json_format:FORMAT",
    "maxwell-json": "flowrun.connectors.formats.maxwell_json:FORMAT",
    "ogg-json": "flowrun.connectors.formats.ogg_json:FORMAT",
    "orc": "flowrun.connectors.formats.orc_format:FORMAT",
    "parquet": "flowrun.connectors.formats.parquet_format:FORMAT",
    "protobuf": "flowrun.connectors.formats.protobuf.protobuf_format:FORMAT",
    "raw": "flowrun.connectors.formats.raw:FORMAT",
}
"""Name → `module:attribute` of a `Format`."""

_FILES_ONLY = frozenset({"arrow", "orc", "parquet"})
_MESSAGES_ONLY = frozenset({"avro-confluent", "debezium-avro-confluent", "protobuf"})
FILE_FORMATS = tuple(sorted(BUILT_IN.keys() - _MESSAGES_ONLY))
"""The formats that files can have."""
RECORD_FORMATS = tuple(sorted(BUILT_IN.keys() - _FILES_ONLY))
"""The formats that single records, such as messages of a queue, can have."""

ERROR_OPTIONS = (
    Option(
        "format.on-error",
        OptionType.ENUM,
        "What to do with a record that is no row of the schema (not in Parquet, Avro …): stop, leave it out and count, or keep it aside.",
        default="fail",
        choices=("fail", "skip", "dead-letter"),
    ),
    Option(
        "format.dead-letter.path",
        OptionType.STRING,
        "Folder for bad records (JSON lines with file, offset, reason and the raw bytes), with on-error = dead-letter.",
    ),
    Option(
        "format.dead-letter.sink",
        OptionType.STRING,
        "Sink of the pipeline for bad records, instead of a folder (docs/dead-letters.md); with on-error = dead-letter.",
    ),
)
"""The options of every source that decodes records, in all formats."""


def error_mode(options: Options, format_name: str | None) -> OnError:
    """What becomes of records that are no rows. With the format's `ignore-parse-errors` they never fail the job.

    Raises:
        OptionError: they are to be kept aside, but it is not said where, or it is said twice.
    """
    mode = OnError(options.text("format.on-error"))
    places = [n for n in ("format.dead-letter.path", "format.dead-letter.sink") if options.get(n)]
    if mode is OnError.DEAD_LETTER and not places:
        hint = "or format.dead-letter.sink, a sink of the pipeline"
        raise OptionError(
            "format.dead-letter.path", "format.on-error = dead-letter needs format.dead-letter.path", hint=hint
        )
    if len(places) > 1:
        raise OptionError(places[1], f"there are two places for dead letters: {places[0]} and {places[1]}")
    ignore = options.get(f"{format_name}.ignore-parse-errors")
    return OnError.SKIP if mode is OnError.FAIL and ignore else mode


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


def file_format_named(name: str) -> Format:
    """How files of the format with this name are laid out: as a container, or as records behind a framing.

    Raises:
        OptionError: there is no format of this name, or its records cannot be kept in files.
    """
    found = format_named(name)
    if isinstance(found, RecordFormat):
        if found.container is not None:
            return found.container
        if found.create_framer is None:
            raise OptionError("format", _not_told_apart(name, "in a file"), hint=f"one of {', '.join(FILE_FORMATS)}")
    return found


def line_format_named(name: str, user: str) -> RecordFormat:
    """The format with this name, whose records a delimiter can end.

    Raises:
        OptionError: there is no format of this name, or it reads whole files, or its records may hold any byte.
    """
    found = record_format_named(name, user)
    if found.create_framer is None:
        raise OptionError(
            "format", f"{user}: {_not_told_apart(name, 'by a delimiter')}", hint="for example json, csv or raw"
        )
    return found


def with_subject(format_name: str, options: Options, subject: str) -> Options:
    """Options of a format whose schemas are registered, with the subject that its connector chooses if the user has named none.

    Args:
        format_name: the format; options of one without a schema registry are given back as they are.
        options: parsed ones, with the format's prefix.
        subject: `TOPIC-value` or `TOPIC-key`, as in Flink.
    """
    name = f"{format_name}.subject"
    declared = any(o.name == name for o in prefixed_options(format_name))
    return options if not declared or options.get(name) else Options({**options.values, name: subject})


def cannot_carry(connector: str, name: str) -> str:
    """What is wrong with a connector that is given a format that it cannot use."""
    found = format_named(name)
    if isinstance(found, FileFormat):
        return f"connector '{connector}' cannot use format '{name}', which is one of whole files"
    if found.changelog:
        return f"connector '{connector}' cannot use format '{name}', whose records are changes of rows"
    if found.create_framer is None:
        return f"connector '{connector}' cannot use format '{name}': {_not_told_apart(name, 'in a file or by a delimiter')}"
    return f"connector '{connector}' cannot use format '{name}'"


def _not_told_apart(name: str, where: str) -> str:
    return f"records of format '{name}' may hold any byte and cannot be told apart {where}; they are for message queues"


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
    return registered(BUILT_IN, ENTRY_POINT_GROUP, "format")


@functools.cache
def _load(name: str, target: str) -> Format:
    found = loaded(target, f"format '{name}'")
    if not isinstance(found, RecordFormat | FileFormat):
        raise InternalError(f"format '{name}': {target} is no format")
    return found
