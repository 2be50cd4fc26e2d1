"""Avro records behind the number of a schema in a registry: their columns from the schemas, and their rows."""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.api.format import lines_chunk
from flowrun.connectors.formats.avro.columns import MisfitError
from flowrun.connectors.formats.avro.confluent import ConfluentDecoder
from flowrun.connectors.formats.avro.schema_registry import SchemaRegistry, UnknownSchemaError
from flowrun.connectors.formats.avro.sql_types import columns_of, record_of
from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.types import DataType
from flowrun.errors import PipelineError
from flowrun.runners.inference.sample import Row

FRAMED = ("avro-confluent", "debezium-avro-confluent")
_HEAD_BYTES = 5
_EVENT = ("before", "after", "op")


@record(eq=False)
class AvroMessages:
    """Rows of messages.

    Attributes:
        schema: the columns of all the schemas that they have, the newest first.
        rows: of each message; None: it has none, or cannot be read.
        why_unread: why a message cannot be read; None: all can.
    """

    schema: Schema
    rows: tuple[Row | None, ...]
    why_unread: str | None

    @property
    def is_change(self) -> bool:
        """Whether the records are events of Debezium."""
        return set(_EVENT) <= set(self.schema.names) and self.image is not None

    @property
    def image(self) -> Schema | None:
        """The columns of the rows that events tell of; None: the records are no events."""
        after: DataType | None = next((f.type for f in self.schema if f.name == "after"), None)
        if after is None or not after.names:
            return None
        return Schema.from_pairs(zip(after.names, after.children, strict=True))


def is_framed(value: bytes | None) -> bool:
    """Whether bytes begin with a 0 and the number of a schema.

    >>> is_framed(bytes([0, 0, 0, 0, 7, 2])), is_framed(b"{}")
    (True, False)
    """
    return value is not None and len(value) >= _HEAD_BYTES and value[0] == 0


def read_avro(values: Sequence[bytes | None], registry: SchemaRegistry) -> AvroMessages:
    """The rows of messages, each read with the schema that it was written with.

    Raises:
        PipelineError: the registry does not know a schema, or it is that of no record.
        ConnectorError: the registry cannot be asked.
    """
    schema = _columns(values, registry)
    places = [i for i, v in enumerate(values) if v is not None]
    decoded = ConfluentDecoder(registry, schema).decode(lines_chunk([values[i] or b"" for i in places]))
    rows: list[Row | None] = [None] * len(values)
    for place, row in zip(decoded.records.tolist(), decoded.columns.to_pylist(maps_as_pydicts="lossy"), strict=True):
        rows[places[place]] = row
    return AvroMessages(schema, tuple(rows), decoded.bad[0].reason if decoded.bad else None)


def _columns(values: Sequence[bytes | None], registry: SchemaRegistry) -> Schema:
    numbers = {int.from_bytes(v[1:_HEAD_BYTES], "big"): None for v in values if v is not None and is_framed(v)}
    fields: dict[str, Field] = {}
    for number in reversed(numbers):
        try:
            for field in columns_of(record_of(registry.schema(number))):
                fields.setdefault(field.name, field)
        except UnknownSchemaError as error:
            raise PipelineError.of(
                f"the schema of the messages cannot be used: {error}",
                "is it another registry that they were written with? Only Avro schemas are read",
            ) from None
        except MisfitError as error:
            raise PipelineError.of(
                f"the messages have the schema {number} of the registry: {error}", "--format raw"
            ) from None
    if not fields:
        raise PipelineError.of(
            "no message that was looked at begins with a 0 and the number of a schema", "--format says what they are"
        )
    return Schema(tuple(fields.values()))
