"""What a sink's table looks like as requests: which method and URL, one row or many in a body, and what is done with deletes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from enum import Enum

from flowrun.api.connector import TableDefinition
from flowrun.api.format import RecordFormat
from flowrun.connectors.formats.registry import line_format_named, record_format_named
from flowrun.connectors.http.endpoint import check_header_name
from flowrun.connectors.http.templates import UrlTemplate, url_template
from flowrun.core.options import Option, Options, OptionType
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import OptionError, StateError

USER = "connector 'http'"


class BodyMode(Enum):
    """What the body of a request holds."""

    SINGLE = "single"
    ARRAY = "json-array"
    LINES = "lines"


class DeleteMode(Enum):
    """What becomes of rows that are deleted."""

    FAIL = "fail"
    IGNORE = "ignore"
    REQUEST = "request"


class KeyMode(Enum):
    """What the idempotency key of a request is made of."""

    NONE = "none"
    REQUEST = "request"
    CONTENT = "content"


def _values(kind: type[Enum]) -> tuple[str, ...]:
    return tuple(m.value for m in kind)


SINK_OPTIONS = (
    Option(
        "insert-method",
        OptionType.ENUM,
        "The method of requests.",
        default="post",
        choices=("post", "put", "patch"),
    ),
    Option(
        "sink.request.mode",
        OptionType.ENUM,
        "What a request carries: `single`, one row as the format writes it; `json-array`, many rows in a JSON array; `lines`, many rows, "
        "each with a line end.",
        default=BodyMode.SINGLE.value,
        choices=_values(BodyMode),
    ),
    Option(
        "sink.batch.max-size", OptionType.INT, "The most rows of a request that carries many.", default=500, minimum=1
    ),
    Option(
        "sink.flush-buffer.size",
        OptionType.MEMORY,
        "The most bytes of the rows of a request that carries many; a longer row goes alone.",
        default=5 << 20,
        minimum=1,
    ),
    Option(
        "sink.flush-buffer.timeout",
        OptionType.DURATION,
        "How long rows wait for others to go with.",
        default=5_000,
        minimum=1,
    ),
    Option(
        "sink.requests.max-inflight",
        OptionType.INT,
        "How many requests of a subtask may be under way. Those with rows of one PRIMARY KEY never are at the same time.",
        default=8,
        minimum=1,
    ),
    Option(
        "sink.max-retries",
        OptionType.INT,
        "How often a request that failed for a passing reason is sent again.",
        default=5,
        minimum=0,
    ),
    Option(
        "sink.delete.mode",
        OptionType.ENUM,
        "With a PRIMARY KEY: what becomes of deleted rows. `fail`: the job fails; `ignore`: nothing; `request`: a request without body.",
        default=DeleteMode.FAIL.value,
        choices=_values(DeleteMode),
    ),
    Option("sink.delete.method", OptionType.STRING, "The method of such requests.", default="DELETE"),
    Option(
        "sink.idempotency-key.mode",
        OptionType.ENUM,
        "What the idempotency key of a request is made of. `request`: its own, which further attempts repeat, and, with exactly-once, "
        "restarts; `content`: method, URL and body, so that equal rows have equal keys; `none`: there is none.",
        default=KeyMode.REQUEST.value,
        choices=_values(KeyMode),
    ),
    Option(
        "sink.idempotency-key.header", OptionType.STRING, "The header that it is sent in.", default="Idempotency-Key"
    ),
    Option(
        "sink.delivery-guarantee",
        OptionType.ENUM,
        "What holds after a failure, with checkpoints. `at-least-once`: rows are sent as they come; `exactly-once`: they wait beside the "
        "checkpoint, and are sent when it is complete, under keys that never change: for a server that takes each key once.",
        default="at-least-once",
        choices=("at-least-once", "exactly-once"),
    ),
)


@record
class RequestShape:
    """How rows become requests. It goes with rows that wait for their commit: they become the same requests whatever the options say then.

    Attributes:
        mode: of bodies.
        method: of requests.
        delete_method: of those for deleted rows.
        most_rows: of a request.
        most_bytes: of the rows of a request.
        lanes: how many requests may be under way.
        key_header: empty: there are no keys.
        by_content: whether keys are made of contents.
    """

    mode: BodyMode
    method: str
    delete_method: str
    most_rows: int
    most_bytes: int
    lanes: int
    key_header: str
    by_content: bool

    def to_metadata(self) -> dict[bytes, bytes]:
        """Metadata of an Arrow schema, from which `of_metadata` makes it again.

        >>> shape = RequestShape(BodyMode.LINES, "POST", "DELETE", 5, 100, 8, "Idempotency-Key", False)
        >>> RequestShape.of_metadata(shape.to_metadata()) == shape
        True
        """
        return {_METADATA: json.dumps({**asdict(self), "mode": self.mode.value}).encode()}

    @classmethod
    def of_metadata(cls, metadata: Mapping[bytes, bytes] | None) -> RequestShape:
        """The shape that goes with rows; raises StateError if there is none."""
        try:
            values = json.loads((metadata or {})[_METADATA])
            return cls(**{**values, "mode": BodyMode(values["mode"])})
        except (KeyError, ValueError, TypeError) as error:
            raise StateError(f"rows that wait for their commit do not say what requests they are: {error!r}") from error


_METADATA = b"flowrun.http.requests"


@record
class SinkLayout:
    """Which requests the rows of a table become.

    Attributes:
        url: of each row.
        shape: of requests.
        columns: the table's.
        keys: names of the columns of the PRIMARY KEY; may be empty.
        deletes: what becomes of deleted rows.
        format: name of the format of rows.
        options: of the format.
    """

    url: UrlTemplate
    shape: RequestShape
    columns: Schema
    keys: tuple[str, ...]
    deletes: DeleteMode
    format: str
    options: Options

    @property
    def record_format(self) -> RecordFormat:
        """The format that makes bytes of rows."""
        return record_format_named(self.format, USER)

    @property
    def content_type(self) -> str:
        """What bodies are, if the user does not say it."""
        if self.format == "json" or self.format.endswith("-json"):
            return "application/x-ndjson" if self.shape.mode is BodyMode.LINES else "application/json"
        return _CONTENT_TYPES.get(self.format, "application/octet-stream")


_CONTENT_TYPES = {
    "csv": "text/csv; charset=utf-8",
    "avro": "avro/binary",
    "avro-confluent": "application/vnd.confluent.avro",
    "protobuf": "application/x-protobuf",
}


def layout_of(table: TableDefinition, url: str) -> SinkLayout:
    """The layout that a table's options describe.

    Args:
        table: with its options.
        url: the endpoint's.

    Raises:
        OptionError: options do not go together.
    """
    options, mode = table.options, BodyMode(table.options.text("sink.request.mode"))
    if table.format is None:
        raise OptionError("format", f"{USER} needs option 'format'", hint="for example json")
    used = line_format_named(table.format, USER) if mode is BodyMode.LINES else record_format_named(table.format, USER)
    is_json = table.format == "json" or table.format.endswith("-json")
    if mode is BodyMode.ARRAY and not is_json:
        raise OptionError(
            "sink.request.mode",
            f"rows of format '{table.format}' are no values of a JSON array",
            hint="use 'lines' or 'single'",
        )
    (used.check_delimited if mode is BodyMode.LINES else used.check)(table.schema, options)
    template = url_template(url, table.schema)
    if mode is not BodyMode.SINGLE and not template.is_fixed:
        raise OptionError(
            "url",
            f"rows that go together in a request have one URL, but 'url' has '{{{template.columns[0]}}}'",
            hint="set 'sink.request.mode' = 'single'",
        )
    deletes = _deletes(table, template, used, mode)
    keys = KeyMode(options.text("sink.idempotency-key.mode"))
    header = options.text("sink.idempotency-key.header")
    if keys is not KeyMode.NONE:
        check_header_name("sink.idempotency-key.header", header)
        if header.lower() in {name.lower() for name in options.under("headers")}:
            raise OptionError(
                "sink.idempotency-key.header", f"header '{header}' is given, too: the connector makes its value"
            )
    if options.text("sink.delivery-guarantee") == "exactly-once" and keys is KeyMode.NONE:
        raise OptionError(
            "sink.idempotency-key.mode",
            "'sink.delivery-guarantee' = 'exactly-once' needs idempotency keys: the server knows by them what it has taken already",
            hint="leave 'sink.idempotency-key.mode' out",
        )
    if keys is KeyMode.CONTENT and (mode is not BodyMode.SINGLE or table.updating):
        raise OptionError(
            "sink.idempotency-key.mode",
            "keys of contents are for inserts of one row a request: a row that is changed, and changed back, has the same key again"
            if table.updating
            else "keys of contents are for requests of one row: after a restart rows go together with others",
            hint="use 'request'",
        )
    shape = RequestShape(
        mode,
        options.text("insert-method").upper(),
        options.text("sink.delete.method").upper(),
        1 if mode is BodyMode.SINGLE else options.integer("sink.batch.max-size"),
        options.integer("sink.flush-buffer.size"),
        options.integer("sink.requests.max-inflight"),
        "" if keys is KeyMode.NONE else header,
        keys is KeyMode.CONTENT,
    )
    return SinkLayout(template, shape, table.schema, table.primary_key, deletes, table.format, options)


def _deletes(table: TableDefinition, template: UrlTemplate, used: RecordFormat, mode: BodyMode) -> DeleteMode:
    deletes, option = DeleteMode(table.options.text("sink.delete.mode")), "sink.delete.mode"
    if not table.options.text("sink.delete.method").isalpha():
        raise OptionError("sink.delete.method", f"'{table.options.text('sink.delete.method')}' is no method")
    if deletes is DeleteMode.FAIL:
        return deletes
    if used.changelog:
        raise OptionError(
            option, f"format '{table.format}' says itself which rows are deleted", hint=f"leave '{option}' out"
        )
    if not table.primary_key:
        raise OptionError(option, f"'{option}' needs a PRIMARY KEY", hint="declare PRIMARY KEY (…) NOT ENFORCED")
    if deletes is DeleteMode.REQUEST:
        missing = [n for n in table.primary_key if n not in template.columns]
        if mode is not BodyMode.SINGLE or missing:
            raise OptionError(
                option,
                "a deleted row is named by its URL: "
                + (
                    f"'url' lacks {', '.join(f'{{{n}}}' for n in missing)}"
                    if missing
                    else "'sink.request.mode' must be 'single'"
                ),
                hint="for example 'url' = 'https://api.example.com/items/{id}'",
            )
        other = [n for n in template.columns if n not in table.primary_key]
        if other:
            raise OptionError(
                option, f"'url' has '{{{other[0]}}}', which is no part of the PRIMARY KEY: deleted rows may not have it"
            )
    return deletes
