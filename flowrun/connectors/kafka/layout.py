"""Which columns of a table are in the key of a message, which in its value, and how each is written."""

from __future__ import annotations

from flowrun.api.connector import TableDefinition
from flowrun.api.format import RecordFormat
from flowrun.connectors.formats.registry import record_format_named, with_subject
from flowrun.core.options import Options, OptionValue
from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.errors import OptionError, did_you_mean


@record(slots=False)
class RecordLayout:
    """Some columns of a table, and the format that holds them.

    Attributes:
        format_name: the name of the format, which is looked up where it is needed.
        columns: the columns by their names in the table.
        options: the options of the format, as formats know them: `json.ignore-parse-errors`.
        prefix: what the names of the columns begin with in the table, but not in the record.
    """

    format_name: str
    columns: Schema
    options: Options
    prefix: str = ""

    @property
    def format(self) -> RecordFormat:
        """The format."""
        return record_format_named(self.format_name, "kafka")

    def stored(self, columns: Schema) -> Schema:
        """Columns of the table under the names that they have in the record."""
        return Schema(tuple(Field(f.name.removeprefix(self.prefix), f.type, f.nullable) for f in columns))


@record
class MessageLayout:
    """The parts of a message. `key` is None if no column is in it."""

    value: RecordLayout
    key: RecordLayout | None


def layout_of(table: TableDefinition, physical: Schema, *, upsert: bool) -> MessageLayout:
    """The layout of a table's messages.

    Args:
        table: the table.
        physical: all its columns that are stored in messages.
        upsert: the primary key is the key of the message.

    Raises:
        OptionError: the options do not fit each other, or a format cannot hold its columns.
    """
    options = table.options
    if table.format is None:
        raise OptionError("format", "a format is needed", hint="for example 'value.format' = 'json'")
    other = options.get("value.format")
    if other is not None and other != table.format:
        raise OptionError(
            "value.format",
            f"'format' = '{table.format}' and 'value.format' = '{other}' contradict each other",
            hint="leave one of them out",
        )
    key_format = options.get("key.format")
    prefix = str(options.get("key.fields-prefix") or "")
    if upsert and not table.primary_key:
        raise OptionError(
            "connector",
            "upsert-kafka needs a PRIMARY KEY, which is the key of the table's messages",
            hint="PRIMARY KEY (id) NOT ENFORCED",
        )
    names = table.primary_key if upsert else _key_fields(table, physical)
    if names and key_format is None:
        raise OptionError(
            "key.format",
            "the columns in the key need 'key.format'",
            hint="'key.format' = 'json'",
        )
    if key_format is not None and not names:
        raise OptionError(
            "key.fields", "'key.format' is given, but no column is in the key", hint="name them: 'key.fields' = 'a;b'"
        )
    wrong = [n for n in names if not n.startswith(prefix)]
    if wrong:
        raise OptionError(
            "key.fields-prefix", f"column '{wrong[0]}' of the key does not begin with 'key.fields-prefix' = '{prefix}'"
        )
    without_key = options.text("value.fields-include").lower() == "except_key"
    if prefix and not without_key:
        raise OptionError(
            "key.fields-prefix",
            "with 'key.fields-prefix' the columns of the key cannot be in the value, too",
            hint="'value.fields-include' = 'EXCEPT_KEY'",
        )
    if not physical.names:
        raise OptionError(
            "connector",
            "there is no column but metadata: nothing is left for the value",
            hint="declare a column that is in the messages",
        )
    in_value = [n for n in physical.names if not (without_key and n in names)]
    if not in_value:
        raise OptionError(
            "value.fields-include",
            "all columns are in the key: none is left for the value",
            hint="'value.fields-include' = 'ALL'",
        )
    value = RecordLayout(table.format, physical.select(in_value), _format_options(options, table.format, "value."))
    key = None
    if names:
        try:
            key = _key_layout(str(key_format), physical.select(names), options, prefix)
        except OptionError as error:
            if error.option != "format":
                raise
            raise OptionError("key.format", f"key: {error.message}", hint=error.hint) from error
    if upsert and value.format.changelog:
        raise OptionError(
            "value.format", f"upsert-kafka: a message sets the row of its key; '{table.format}' carries changes"
        )
    value.format.check(value.columns, value.options)
    return MessageLayout(value, key)


def _key_layout(name: str, columns: Schema, options: Options, prefix: str) -> RecordLayout:
    key = RecordLayout(name, columns, _format_options(options, name, "key."), prefix)
    if key.format.changelog:
        raise OptionError("key.format", f"a key is no change: format '{name}' cannot be that of a key")
    key.format.check(key.stored(key.columns), key.options)
    return key


def _key_fields(table: TableDefinition, physical: Schema) -> tuple[str, ...]:
    names = tuple(n.strip() for n in str(table.options.get("key.fields") or "").split(";") if n.strip())
    for name in names:
        if name not in physical:
            raise OptionError(
                "key.fields",
                f"'key.fields' names '{name}', which is no column of {table.name}",
                hint=did_you_mean(name, physical.names) or "several are separated by ';'",
            )
    return names


def _format_options(options: Options, format_name: str, part: str) -> Options:
    """The options of a format in one part of the message, with other options left as they are. `value.json.x` goes before `json.x`."""
    own: dict[str, OptionValue] = {}
    for option in record_format_named(format_name, "kafka").options:
        plain = f"{format_name}.{option.name}"
        if "#" in plain:
            begin = part + plain.partition("#")[0]
            own |= {k.removeprefix(part): v for k, v in options.values.items() if k.startswith(begin)}
            continue
        value = options.get(part + plain)
        shared = options.get(plain) if part == "value." else None
        own[plain] = shared if value in (None, option.default) and shared is not None else value
    topic = str(options.get("topic") or "")
    found = Options({**options.values, **own})
    return with_subject(format_name, found, f"{topic}-{part[:-1]}") if topic and ";" not in topic else found
