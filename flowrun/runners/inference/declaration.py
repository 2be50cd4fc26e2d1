"""A declared source as text: a pipeline in YAML or SQL that shows its rows, with what was seen as comments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from flowrun.core.record import record
from flowrun.core.types import BYTES, DataType
from flowrun.core.units import interval_text
from flowrun.errors import PipelineError
from flowrun.frontend.references import without_references
from flowrun.frontend.sql.script.stored_tables import type_text
from flowrun.frontend.trees.spec import NAME_PATTERN
from flowrun.frontend.trees.writing import yaml_quoted
from flowrun.frontend.yaml.queries.queries import quoted
from flowrun.runners.inference.event_time import EventTime, measured, propose
from flowrun.runners.inference.sample import NAMELESS, Sample
from flowrun.runners.inference.value_types import Column, columns_of, without_nameless_fields

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_YAML_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null"})
_KEY = re.compile(r"(^|_)(id|key|uuid|number|no)$|Id$|ID$", re.IGNORECASE)
_LEAST_ROWS_OF_A_KEY = 20
_LONGEST_KEY = 1000
"""Characters of a key of YAML that stands before its colon without a mark; 1024 at most."""
_LONGEST_ALIGNED = 60
"""Code points of a line whose remark stands below those of others."""
_EVENT_TIME = "event_time"
_MESSAGE_TIME = "timestamp"
"""The metadata of a message that is its time."""


@record
class Declaration:
    """A source as it is proposed.

    Attributes:
        name: of the table.
        sample: what was looked at.
        columns: of its rows.
        event_time: which column says when a row happened, and how late rows come; None: none looks like it.
        message_time: the time that messages have of their own, as event time, where no column is; None: they have none.
    """

    name: str
    sample: Sample
    columns: tuple[Column, ...]
    event_time: EventTime | None
    message_time: EventTime | None = None

    @property
    def time_column(self) -> str | None:
        """The column that holds the event time: one of the data, or one that is computed of it, or read beside it."""
        if self.event_time is None and self.message_time is None:
            return None
        if self.event_time is not None and self.event_time.unit is None:
            return self.event_time.column
        taken = {column.name for column in self.columns}
        found = self.event_time or self.message_time
        assert found is not None
        return next(name for name in (_EVENT_TIME, "rowtime", f"{found.column}_time") if name not in taken)

    @property
    def likely_keys(self) -> tuple[str, ...]:
        """Columns whose values differ in all rows, and whose names say that they identify one."""
        unique = (c for c in self.columns if c.is_unique and c.rows >= _LEAST_ROWS_OF_A_KEY)
        return tuple(c.name for c in unique if _KEY.search(c.name))


def declaration(sample: Sample, name: str | None = None) -> Declaration:
    """What a sample is proposed to be declared as, under its own name or another. Raises PipelineError: its rows have no columns."""
    columns = columns_of(sample.rows)
    if sample.schema is not None:
        seen = {column.name: column for column in columns}
        types = ((f.name, without_nameless_fields(f.type)) for f in sample.schema)
        known = tuple(_declared(name, type, seen.get(name)) for name, type in types if type is not None)
        columns = known + tuple(column for column in columns if column.name not in sample.schema)
    named = tuple(column for column in columns if column.name.strip())
    if len(named) < len(columns):
        sample, columns = replace(sample, remarks=(*sample.remarks, NAMELESS)), named
    if not columns:
        without = " with names" if NAMELESS in sample.remarks else ""
        raise PipelineError.of(f"the rows of '{sample.place}' that were looked at have no columns{without}")
    time = propose(columns, sample.parts)
    times = [np.array(part, np.int64) for part in sample.message_times_ms if part]
    of_messages = measured(_MESSAGE_TIME, None, times) if time is None and times else None
    return Declaration(name or sample.name, sample, columns, time, of_messages)


def _declared(name: str, type: DataType, seen: Column | None) -> Column:
    """A column whose type is known; the sample tells of NULL and of keys."""
    if seen is None:
        return Column(name, type, 0, 0, is_unique=False)
    return Column(name, type, seen.nulls, seen.rows, seen.is_unique and type != BYTES)


def as_yaml(declared: Declaration) -> str:
    """A pipeline that prints the rows of the source.

    Raises:
        PipelineError: the source cannot have this name.
    """
    if not re.fullmatch(NAME_PATTERN, declared.name):
        raise PipelineError.of(
            f"a source cannot be called '{declared.name}'",
            "--name NAME: letters, digits, _ and -, no digit first",
        )
    sample, name = declared.sample, _yaml_name(declared.name)
    lines = [
        *(f"# {_one_line(line)}" for line in _about(declared)),
        f"name: {name}",
        "sources:",
        f"  {name}:",
        f"    connector: {sample.connector}",
        *(f"    {option}: {_yaml_text(value)}" for option, value in sample.options),
    ]
    for key, columns in (("partition_by", sample.partition_by), ("primary_key", sample.primary_key)):
        if columns:
            lines.append(f"    {key}: [{', '.join(map(_yaml_column, columns))}]")
    lines.append("    schema:")
    lines += _aligned(
        (f"      {_yaml_key(c.name)}: {_yaml_text(without_references(type_text(c.type)))}", _remark(c, declared))
        for c in declared.columns
    )
    time = declared.event_time
    if time is not None:
        if time.unit is not None:
            lines += [
                "    computed:",
                f"      {declared.time_column}: {_yaml_text(without_references(_converted(time)))}",
            ]
        lines.append(f"    # {time.reason}")
        column = _yaml_column(str(declared.time_column))
        lines.append(f"    watermark: {{column: {column}, delay: {_duration(time.delay_ms)}}}")
    lines += ["sinks:", f"  show: {{from: {name}, connector: print}}", ""]
    return "\n".join(lines)


def as_sql(declared: Declaration) -> str:
    """A script that shows the rows of the table.

    Raises:
        PipelineError: SQL cannot name the table or a column.
    """
    _check_sql_names(declared)
    sample, name = declared.sample, _sql_name(declared.name)
    parts = [
        (f"  {_sql_name(c.name)} {without_references(type_text(c.type))}", _remark(c, declared))
        for c in declared.columns
    ]
    time = declared.event_time or declared.message_time
    if time is not None:
        column = _sql_name(str(declared.time_column))
        if declared.event_time is None:
            parts.append((f"  {column} TIMESTAMP_LTZ(3) METADATA FROM '{_MESSAGE_TIME}'", "of the messages themselves"))
        elif time.unit is not None:
            parts.append((f"  {column} AS {without_references(_converted(time))}", ""))
        delay = f" - {interval_text(time.delay_ms)}" if time.delay_ms else ""
        parts.append((f"  WATERMARK FOR {column} AS {column}{delay}", time.reason))
    if sample.primary_key:
        parts.append((f"  PRIMARY KEY ({', '.join(map(_sql_name, sample.primary_key))}) NOT ENFORCED", ""))
    last = len(parts) - 1
    body = _aligned(((f"{text}{',' if i < last else ''}", remark) for i, (text, remark) in enumerate(parts)), mark="--")
    options = [("connector", sample.connector), *sample.options]
    listed = ",\n".join(f"  {_sql_text(option)} = {_sql_text(value)}" for option, value in options)
    partitions = ""
    if sample.partition_by:
        partitions = f"PARTITIONED BY ({', '.join(map(_sql_name, sample.partition_by))}) "
    about = "".join(f"-- {_one_line(line)}\n" for line in _about(declared, in_sql=True))
    return (
        f"{about}CREATE TABLE {name} (\n"
        + "\n".join(body)
        + f"\n) {partitions}WITH (\n{listed}\n);\n\nSELECT * FROM {name};\n"
    )


def _about(declared: Declaration, *, in_sql: bool = False) -> Iterator[str]:
    """What people should know before they rely on a declaration, a line each."""
    sample = declared.sample
    rows = len(sample.rows)
    yield (
        f"Proposed from {rows:,} row{'s' * (rows != 1)} of {sample.looked_at}: "
        "look at types, keys and the watermark's delay before you rely on them."
    )
    yield from sample.remarks
    for variable in sample.variables:
        yield (
            f"{variable} holds a secret, which is not written down: "
            f"set it in the environment, or give it by --secret-var {variable}."
        )
    time = declared.message_time
    if declared.event_time is None and time is None:
        yield "No column looks like an event time: windows and interval joins need one, and a watermark."
    elif declared.event_time is None and time is not None and not in_sql:
        yield (
            f"No column looks like an event time, but messages have times of their own ({time.reason}), which tables in SQL can read: "
            "flowrun infer --as sql."
        )


def _remark(column: Column, declared: Declaration) -> str:
    remarks = []
    if column.name in declared.likely_keys:
        remarks.append("differs in each row")
    if column.nulls:
        share = column.nulls / column.rows
        remarks.append(
            f"NULL or missing in {share:.0%} of the rows"
            if share >= 0.01
            else f"NULL or missing in {column.nulls} rows"
        )
    if column.note is not None:
        remarks.append(column.note)
    return "; ".join(remarks)


def _aligned(lines: Iterator[tuple[str, str]] | Sequence[tuple[str, str]], mark: str = "#") -> list[str]:
    """Lines with their remarks in one column."""
    listed = list(lines)
    width = max((len(text) for text, remark in listed if remark and len(text) <= _LONGEST_ALIGNED), default=0)
    return [f"{text.ljust(width)}  {mark} {_one_line(remark)}" if remark else text for text, remark in listed]


def _one_line(text: str) -> str:
    r"""A text for a comment: on one line, of marks that YAML takes, and without references that would be filled in.

    >>> _one_line("a\nb ${HOME}")
    'a b $ {HOME}'
    """
    shown = "".join(c if c.isprintable() else "�" for c in re.sub(r"\s+", " ", text))
    return shown.replace("${", "$ {")


def _converted(time: EventTime) -> str:
    scale = {"s": "0", "ms": "3"}[str(time.unit)]
    return f"TO_TIMESTAMP_LTZ({quoted(time.column)}, {scale})"


def _duration(ms: int) -> str:
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if ms and ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms}ms"


def _yaml_name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) and name.lower() not in _YAML_WORDS else yaml_quoted(name)


def _yaml_column(name: str) -> str:
    """A column's name as a value, in which references would be filled in."""
    return _yaml_name(without_references(name))


def _yaml_key(name: str) -> str:
    """A column's name as a key, with what has to stand before the colon: YAML takes long keys only if they are marked as such."""
    key = _yaml_name(name)
    return key if len(key) < _LONGEST_KEY else f"? {key}\n      "


def _yaml_text(text: str) -> str:
    """A text as YAML; in quotes where it would be read as something else."""
    plain = re.fullmatch(r"[A-Za-z_./][\w ./()<>*+-]*", text) and text.lower() not in _YAML_WORDS
    return text if plain else yaml_quoted(text)


def _sql_name(name: str) -> str:
    return quoted(without_references(name))


def _check_sql_names(declared: Declaration) -> None:
    """Raise PipelineError if a name of the table cannot be written in SQL."""
    if not declared.name.strip():
        raise PipelineError.of("a table needs a name", "--name NAME")
    named = (declared.name, *(name for c in declared.columns for name in (c.name, *_fields(c.type))))
    wrong = next((name for name in named if "\r" in name), None)
    if wrong is not None:
        raise PipelineError.of(
            f"column {yaml_quoted(wrong)} has a carriage return in its name, which SQL cannot write", "--as yaml can"
        )


def _fields(type: DataType) -> Iterator[str]:
    """The names of fields in a type."""
    yield from type.names
    for child in type.children:
        yield from _fields(child)


def _sql_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
