"""Samples of topics of Kafka: `kafka://HOST:PORT/TOPIC`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import unquote

from flowrun.connectors.formats.avro.registry_options import registry_settings
from flowrun.connectors.formats.avro.schema_registry import SchemaRegistry, schema_registry
from flowrun.connectors.formats.registry import prefixed_options
from flowrun.connectors.kafka.cluster import cluster_of
from flowrun.connectors.kafka.messages import Messages
from flowrun.connectors.kafka.peeking import look_at_topic
from flowrun.core.options import parse_options
from flowrun.core.schema import Schema
from flowrun.errors import OptionError, PipelineError
from flowrun.runners.inference.avro_messages import FRAMED
from flowrun.runners.inference.given_options import TableOptions, filled, table_options
from flowrun.runners.inference.message_keys import ReadKeys, read_keys
from flowrun.runners.inference.message_values import ReadValues, read_values
from flowrun.runners.inference.sample import Asked, Row, Sample, name_for

SCHEME = "kafka"
_PATIENCE_S = 30.0
_REGISTRY_FORM = "--registry URL"


def sample_topic(asked: Asked) -> Sample:
    """A sample of a topic: messages of the beginning and of the end of each of its partitions.

    Args:
        asked: about `kafka://HOST:PORT[,HOST:PORT…]/TOPIC`.

    Raises:
        ConnectorError: the cluster or the registry does not answer or refuses, or there is no such topic.
        PipelineError: the topic is empty, its messages are of no format that is known, or an option is wrong.
    """
    servers, topic = _named(asked.place)
    own = {"topic": topic, "properties.bootstrap.servers": servers}
    of_client = {n: v for n, v in asked.options.items() if n.startswith("properties.")}
    reached = table_options(replace(asked, options=of_client), "kafka", None, own)
    found = look_at_topic(cluster_of(reached.values), topic, asked.rows, _PATIENCE_S)
    what = f"topic '{topic}'"
    if not found:
        raise PipelineError.of(
            f"{what} is empty: it has no message to look at", "write a message to it, or declare its columns by hand"
        )

    def registry(form: str) -> SchemaRegistry:
        return _registry(asked, form)

    messages = [m for part in found for m in zip(part.keys(), part.values(), strict=True)]
    keys, values = [k for k, _ in messages], [v for _, v in messages]
    read = read_values(values, asked.form, registry, what)
    read_key = read_keys(keys, read.rows, lambda: registry("avro-confluent"))
    tombstones = sum(v is None for v in values)
    is_change = read.form.startswith("debezium-")
    upserts = read_key is not None and bool(read_key.form) and tombstones > 0 and not is_change
    connector = "upsert-kafka" if upserts else "kafka"
    options = _options(asked, connector, own, read, read_key)
    parts, times = _parts(found, _with_keys(read.rows, read_key))
    columns = [s for s in (read.schema, None if read_key is None else read_key.schema) if s is not None]
    by_key = upserts or read.needs_key
    return Sample(
        place=f"{SCHEME}://{servers}/{topic}",
        name=name_for(topic.rpartition(".")[2], "messages"),
        connector=connector,
        options=options.written,
        parts=parts,
        looked_at=f"{len(found)} partition{'s' * (len(found) > 1)} of {what}",
        schema=Schema(tuple(f for s in columns for f in s)) if columns else None,
        primary_key=read_key.columns if by_key and read_key is not None else (),
        remarks=tuple(_remarks(read, read_key, tombstones, is_upsert=upserts)),
        message_times_ms=times,
        variables=options.variables,
    )


def _named(place: str) -> tuple[str, str]:
    """(servers, topic).

    >>> _named("kafka://a:9092,b:9092/orders")
    ('a:9092,b:9092', 'orders')
    """
    rest = place.partition("://")[2]
    servers, _, topic = rest.partition("/")
    topic = unquote(topic.strip("/"))
    if not servers or not topic or not all(re.fullmatch(r"[^:@]+:\d+|\[.+\]:\d+", s) for s in servers.split(",")):
        raise PipelineError.of(
            f"'{place}' names no topic", "kafka://HOST:PORT/TOPIC; a login goes into --with properties.sasl.username=…"
        )
    return servers, topic


def _registry(asked: Asked, form: str) -> SchemaRegistry:
    """The registry that the user names by the options of the format."""
    prefix = f"{form}."
    given = {n: filled(n, v, asked.environment) for n, v in asked.options.items() if n.startswith(prefix)}
    if f"{form}.url" not in given:
        raise PipelineError.of(
            "the messages begin with the number of a schema: they are Avro with a schema in a registry",
            f"say where it is: {_REGISTRY_FORM}",
        )
    options, errors = parse_options(prefixed_options(form), given, f"format '{form}'")
    if errors:
        raise PipelineError.of(errors[0].message, errors[0].hint)
    try:
        return schema_registry(registry_settings(options, form))
    except OptionError as error:
        raise PipelineError.of(error.message, error.hint) from None


def _options(
    asked: Asked, connector: str, own: Mapping[str, str], read: ReadValues, key: ReadKeys | None
) -> TableOptions:
    """The options of the table, as they are written."""
    by_format = {f"{read.form}.{name}": value for name, value in read.options.items()}
    more = {} if connector == "upsert-kafka" else {"scan.startup.mode": "earliest-offset"}
    if key is not None and key.form:
        more |= {} if connector == "upsert-kafka" else {"key.fields": ";".join(key.columns)}
        more |= key.options
    if read.unread:
        more["format.on-error"] = "skip"
    options = table_options(
        replace(asked, options=_for_format(asked.options, read.form, key)),
        connector,
        read.form,
        {**own, **more, **by_format},
    )
    written = dict(options.written)
    first = {name: written.pop(name) for name in own}
    return replace(options, written=(*first.items(), ("format", read.form), *written.items()))


def _for_format(options: Mapping[str, str], form: str, key: ReadKeys | None) -> dict[str, str]:
    """The user's options: those of a registry for the format that was found, and for that of the keys."""
    found = {}
    for name, value in options.items():
        of = next((f for f in FRAMED if name.startswith(f"{f}.")), None)
        if of is None:
            found[name] = value
            continue
        rest = name.removeprefix(of)
        if form in FRAMED:
            found[form + rest] = value
        if key is not None and key.form in FRAMED:
            found[f"key.{key.form}{rest}"] = value
    return found


def _with_keys(rows: Sequence[Row | None], key: ReadKeys | None) -> list[Row | None]:
    if key is None or key.rows is None:
        return list(rows)
    return [None if row is None else {**row, **of_key} for row, of_key in zip(rows, key.rows, strict=True)]


def _parts(
    found: Sequence[Messages], rows: Sequence[Row | None]
) -> tuple[tuple[tuple[Row, ...], ...], tuple[tuple[int, ...], ...]]:
    """(rows, times of their messages) of each partition; no times if a message has none."""
    parts, times = [], []
    position = 0
    for messages in found:
        here = rows[position : position + len(messages)]
        position += len(messages)
        kept = [
            (row, message.timestamp()) for row, message in zip(here, messages.messages, strict=True) if row is not None
        ]
        parts.append(tuple(row for row, _ in kept))
        times.append(tuple(-1 if kind == 0 else time for _, (kind, time) in kept))
    return tuple(parts), () if any(t < 0 for part in times for t in part) else tuple(times)


def _remarks(read: ReadValues, key: ReadKeys | None, tombstones: int, *, is_upsert: bool) -> Sequence[str]:
    remarks = []
    if read.unread:
        problem = f": {read.why_unread}" if read.why_unread else ""
        remarks.append(
            f"{read.unread:,} of the messages could not be read{problem}. "
            "`format.on-error: skip` leaves such ones out, `fail` ends the job."
        )
    if is_upsert:
        remarks.append(
            f"{tombstones:,} of the messages have a key and no value: they delete the row of their key, "
            "so each message is the newest row of its key."
        )
    if read.needs_key:
        have = (
            "by the primary key" if key is not None else "by a primary key, which you have to name: messages have none"
        )
        remarks.append(f"Changes come without the row before them, so that they go {have}.")
    return remarks
