"""Looks up rows at an HTTP server: one request a key, or one for many, several at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.connector import TableDefinition
from flowrun.api.format import ReadRequest, RecordDecoder, messages_chunk
from flowrun.api.lookup import FoundRows, Lookup, LookupContext
from flowrun.connectors.asked_keys import AskedKeys
from flowrun.connectors.formats.registry import record_format_named
from flowrun.connectors.http.answers import NoRowsError, parse_pointer, rows_in
from flowrun.connectors.http.client import HttpAnswer
from flowrun.connectors.http.endpoint import Endpoint, endpoint_of
from flowrun.connectors.http.lanes import ClientThread
from flowrun.connectors.http.questions import Questions, questions_of
from flowrun.core.options import Option, Options, OptionType
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import ConnectorError, DataError, OptionError

LOOKUP_OPTIONS = (
    Option("lookup-method", OptionType.ENUM, "The method of requests.", default="get", choices=("get", "post", "put")),
    Option(
        "lookup.request.mode",
        OptionType.ENUM,
        "`single`: one request a key; `batch`: one for many keys, whose rows the answer names by their key columns.",
        default="single",
        choices=("single", "batch"),
    ),
    Option("lookup.batch.max-size", OptionType.INT, "The most keys of a request for many.", default=100, minimum=1),
    Option(
        "lookup.request.body",
        OptionType.STRING,
        "A JSON text to send, in which `{column}` stands for the JSON value of a key column (in a request for many keys for an array of "
        "values) and `{keys}` for the key columns as an object (as an array of objects). Without it: `{keys}`.",
    ),
    Option(
        "lookup.requests.max-inflight",
        OptionType.INT,
        "How many requests of a lookup may be under way.",
        default=8,
        minimum=1,
    ),
    Option(
        "lookup.response.rows",
        OptionType.STRING,
        "A JSON pointer to the rows in an answer, which are an object or an array of objects: /data/items. Without it: the whole answer.",
    ),
    Option(
        "lookup.response.max-size", OptionType.MEMORY, "The longest answer that is read.", default=16 << 20, minimum=1
    ),
    Option(
        "format.on-error",
        OptionType.ENUM,
        "What to do with an answer that holds no row of the table: stop the job, or take it for no row and count it.",
        default="fail",
        choices=("fail", "skip"),
    ),
)


@record(slots=False)
class HttpLookupSource:
    """A server that is asked by key.

    Attributes:
        endpoint: the server.
        questions: how keys become requests.
        schema: the columns of the rows that are found.
        declared: all columns of the table.
        options: of the table.
    """

    endpoint: Endpoint
    questions: Questions
    schema: Schema
    declared: Schema
    options: Options

    @property
    def keys(self) -> Schema:
        """The columns that are asked by."""
        return self.questions.keys

    def create_lookup(self, context: LookupContext) -> Lookup:
        """The lookup of one subtask, with connections of its own."""
        return HttpLookup(self, context)


class HttpLookup:
    """Asks in a thread of its own, and waits for all answers of a batch."""

    def __init__(self, source: HttpLookupSource, context: LookupContext) -> None:
        self._source = source
        self._bad = context.metrics.counter("numRecordsInErrors")
        self._requests = context.metrics.counter("numRequests")
        self._retries = context.metrics.counter("lookupRetries")
        self._pointer = parse_pointer("lookup.response.rows", str(source.options.get("lookup.response.rows") or ""))
        self._skips_bad = source.options.text("format.on-error") == "skip"
        keys = set(source.keys.names)
        # in the answer to one key its columns need not be; in that to many they tell whose the rows are
        read = set(source.schema.names) - keys | (keys if source.questions.most_keys else set())
        self._read = source.declared.select(n for n in source.declared.names if n in read)
        used = record_format_named("json", "a lookup of connector 'http'")
        self._decoder: RecordDecoder = used.create_decoder(ReadRequest(self._read, source.declared, source.options))
        self._client: ClientThread | None = None

    def open(self) -> None:
        """Read PEM files; the server is asked with the first key. Raises ConnectorError, SetupError."""
        source = self._source
        self._client = ClientThread(
            source.endpoint,
            source.options.integer("lookup.requests.max-inflight"),
            source.options.integer("lookup.response.max-size"),
            lambda is_further: (self._retries if is_further else self._requests).inc(),
        )

    def find(self, keys: pa.RecordBatch) -> FoundRows:
        """The rows with these keys.

        Raises:
            ConnectorError: the server cannot be asked, after all attempts; the same call is not to be repeated.
            DataError: an answer holds no row of the table.
        """
        assert self._client is not None
        asked, source = AskedKeys(keys), self._source
        requests = source.questions.requests(asked.distinct)
        at_a_time = source.options.integer("lookup.requests.max-inflight")
        try:
            answers = self._client.run(self._client.send_all(requests, at_a_time)) if requests else []
        except ConnectorError as error:  # it was tried again already, request by request
            retryable = False if error.retryable is False else None
            raise ConnectorError(error.message, retryable=retryable, hint=error.hint) from error
        records, of_record = self._records(answers, asked.distinct)
        decoded = self._decoder.decode(messages_chunk(pa.array(records, pa.binary())))
        for bad in decoded.bad:
            self._reject(asked.distinct, of_record[bad.index], bad.reason)
        rows = decoded.columns
        if source.questions.most_keys:
            owners = asked.owners([rows.column(n) for n in source.keys.names])
        else:
            owners = np.array(of_record, np.int64)[decoded.records]
        positions, probe = asked.spread(owners)
        arrays = []
        for field in source.schema:
            if field.name in source.keys.names:
                arrays.append(keys.column(source.keys.index(field.name)).take(pa.array(probe)))
            else:
                arrays.append(rows.column(field.name).take(pa.array(positions)))
        if not arrays:
            return FoundRows(pa.RecordBatch.from_struct_array(pa.array([{}] * len(probe), pa.struct([]))), probe)
        return FoundRows(pa.RecordBatch.from_arrays(arrays, schema=source.schema.arrow), probe)

    def _records(self, answers: list[HttpAnswer], keys: pa.RecordBatch) -> tuple[list[bytes], list[int]]:
        """The JSON texts of all rows, and for each of them the number of its answer."""
        records: list[bytes] = []
        of_record: list[int] = []
        for number, answer in enumerate(answers):
            try:
                found = rows_in(answer.body, self._pointer)
            except NoRowsError as error:
                self._reject(keys, number, str(error))
                continue
            records += found
            of_record += [number] * len(found)
        return records, of_record

    def _reject(self, keys: pa.RecordBatch, answer: int, reason: str) -> None:
        if not self._skips_bad:
            most = self._source.questions.most_keys
            of = "" if most else f" for {keys.slice(answer, 1).to_pylist()[0]}"
            raise DataError(
                f"{self._source.questions.method} {self._source.endpoint}: the answer{of} holds no row of the table: {reason}",
                hint="'lookup.response.rows' says where rows are; 'format.on-error' = 'skip' takes such answers for no row",
            )
        self._bad.inc(1)

    def close(self) -> None:
        """Disconnect; idempotent."""
        client, self._client = self._client, None
        if client is not None:
            client.close()


def create_lookup(table: TableDefinition, keys: tuple[str, ...]) -> HttpLookupSource:
    """The lookup of a table definition.

    Raises:
        OptionError: an option is wrong, or options do not go together.
    """
    options, declared = table.options, table.declared or table.schema
    if table.format != "json":
        raise OptionError("format", "connector 'http' looks up rows in answers of format 'json' only")
    record_format_named("json", "a lookup of connector 'http'").check(declared, options)
    parse_pointer("lookup.response.rows", str(options.get("lookup.response.rows") or ""))
    endpoint = endpoint_of(options, options.integer("lookup.max-retries"))
    most_keys = options.integer("lookup.batch.max-size") if options.text("lookup.request.mode") == "batch" else 0
    body = options.get("lookup.request.body")
    questions = questions_of(
        options.text("lookup-method").upper(),
        endpoint.url,
        None if body is None else str(body),
        most_keys,
        declared.select(keys),
    )
    return HttpLookupSource(endpoint, questions, table.schema, declared, options)
