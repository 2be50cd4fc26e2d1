"""Rows as commands, and options that do not go together; no server is needed."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from flowrun.connectors.redis.encoding import CommandEncoder
from flowrun.core import types as t
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.schema import Field, Schema
from flowrun.errors import DataError, OptionError, PipelineError
from flowrun.runners.compile import compile_pipeline
from tests.connectors.redis.tables import lookup, sink

SCHEMA = Schema.of(id=t.BIGINT, name=t.STRING, n=t.INT)


def words(rows: pa.RecordBatch) -> list[list[list[bytes]]]:
    """For each row its commands, each as its words, read as Redis reads them; and the number of them is the one announced."""
    found = []
    for text, answers in zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True):
        stream, commands = io.BytesIO(text), []
        while line := stream.readline():
            assert line[:1] == b"*"
            command = []
            for _ in range(int(line[1:])):
                length = stream.readline()
                assert length[:1] == b"$"
                command.append(stream.read(int(length[1:])))
                assert stream.read(2) == b"\r\n"
            commands.append(command)
        assert len(commands) == answers
        found.append(commands)
    return found


def encoded(made: Any, rows: dict[str, list[Any]], kinds: list[RowKind] | None = None) -> list[list[list[bytes]]]:
    batch = pa.RecordBatch.from_pydict(rows, schema=made.schema.arrow)
    marks = None if kinds is None else pa.array(np.array(kinds, np.int8))
    encoder = CommandEncoder(made.layout, made.schema, made.ttl_ms)
    return words(encoder.encode(RecordBatch(batch, None, marks)))


ROWS: dict[str, list[Any]] = {"id": [1, 2], "name": ["a\r\nb", None], "n": [None, 7]}


def test_a_string_for_each_key() -> None:
    made = sink(SCHEMA, {"format": "json", "key.prefix": "user:", "sink.ttl": "10 s"}, "id")
    assert encoded(made, ROWS) == [
        [[b"SET", b"user:1", b'{"name":"a\\r\\nb","n":null}', b"PX", b"10000"]],
        [[b"SET", b"user:2", b'{"name":null,"n":7}', b"PX", b"10000"]],
    ]


def test_a_hash_for_each_key_without_its_nulls_and_old_fields() -> None:
    made = sink(SCHEMA, {"type": "hash"}, "id")
    assert encoded(made, {**ROWS, "n": [None, None]}) == [
        [[b"DEL", b"1"], [b"HSET", b"1", b"name", b"a\r\nb"]],
        [[b"DEL", b"2"]],
    ]
    assert encoded(sink(SCHEMA, {"type": "hash", "sink.ttl": "1 s"}, "id"), ROWS)[1] == [
        [b"DEL", b"2"],
        [b"HSET", b"2", b"n", b"7"],
        [b"PEXPIRE", b"2", b"1000"],
    ]


@pytest.mark.parametrize("kind", ["string", "hash"])
def test_deleted_rows_are_deleted_in_their_order(kind: str) -> None:
    made = sink(SCHEMA, {"type": kind, **({"format": "json"} if kind == "string" else {})}, "id")
    kinds = [RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE]
    found = encoded(made, {"id": [1, 1, 1], "name": ["a", "b", None], "n": [1, 2, 3]}, kinds)
    assert found[0] == found[2] == [[b"DEL", b"1"]]
    assert found[1][-1][0] in (b"SET", b"HSET")


@pytest.mark.parametrize(("kind", "word"), [("list", b"RPUSH"), ("set", b"SADD")])
def test_members_of_one_value(kind: str, word: bytes) -> None:
    made = sink(Schema.of(v=t.STRING), {"type": kind, "key": "all"})
    assert encoded(made, {"v": ["a", None, ""]}) == [
        [[word, b"all", b"a"]],
        [[word, b"all", b""]],
        [[word, b"all", b""]],
    ]


def test_entries_of_a_stream() -> None:
    made = sink(SCHEMA, {"type": "stream", "key": "s"})
    assert encoded(made, {"id": [1, None], "name": ["x", None], "n": [None, None]}) == [
        [[b"XADD", b"s", b"*", b"id", b"1", b"name", b"x"]],
        [[b"XADD", b"s", b"*", b"id", b""]],
    ]


def test_names_of_several_columns() -> None:
    schema = Schema.of(day=t.DATE, user=t.STRING, n=t.INT)
    made = sink(schema, {"type": "hash", "key.separator": "/", "key.prefix": "p/"}, "day", "user")
    rows: dict[str, list[Any]] = {"day": [19_000], "user": ["ann"], "n": [1]}
    assert encoded(made, rows)[0][0] == [b"DEL", b"p/2022-01-08/ann"]
    with pytest.raises(DataError, match="key column 'user' has the key separator"):
        encoded(made, {**rows, "user": ["a/b"]})


def test_nulls_where_none_may_be() -> None:
    with pytest.raises(DataError, match="'id' is in the key, but the row has a NULL"):
        encoded(sink(SCHEMA, {"type": "hash"}, "id"), {**ROWS, "id": [1, None]})
    strict = Schema((Field("id", t.BIGINT), Field("n", t.INT, nullable=False)))
    made = sink(strict, {"type": "hash"}, "id")
    assert encoded(made, {"id": [1], "n": [5]}) == [[[b"DEL", b"1"], [b"HSET", b"1", b"n", b"5"]]]


@pytest.mark.parametrize(
    ("given", "keys", "message"),
    [
        ({"type": "hash"}, (), "needs a PRIMARY KEY"),
        ({"type": "list", "format": "json"}, (), "needs 'key'"),
        ({"type": "string", "format": "json", "key": "x"}, ("id",), "'key' is for lists"),
        ({"type": "string"}, ("id",), "needs option 'format'"),
        ({"type": "hash", "format": "json"}, ("id",), "takes no format"),
        ({"type": "stream", "key": "s", "sink.ttl": "1 s"}, (), "'sink.ttl' is for values by key"),
        ({"type": "hash"}, ("id", "name", "n"), "there is nothing to store"),
        ({"type": "hash", "url": "localhost:6379"}, ("id",), "no address of a Redis server"),
        ({"type": "hash", "url": "redis://me:word-that-is-secret@h:1/x"}, ("id",), "'h:1/x' is no address"),
    ],
)
def test_options_that_do_not_go_together(given: dict[str, Any], keys: tuple[str, ...], message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        sink(SCHEMA, given, *keys)
    assert "word-that-is-secret" not in str(caught.value)


def test_a_value_may_have_line_ends_as_it_is_no_line() -> None:
    schema = Schema.of(v=t.STRING)
    check = sink(schema, {"type": "list", "key": "all", "format": "raw"}).create_check()
    assert check is not None
    check(pa.record_batch({"v": ["a\nb"]}, schema.arrow))


def test_lookups_ask_by_the_key() -> None:
    with pytest.raises(OptionError, match="cannot be found by key"):
        lookup(SCHEMA, SCHEMA, {"type": "list", "key": "x", "format": "json"}, "id")


@pytest.mark.parametrize("query", ["SELECT id FROM c", "SELECT COUNT(*) FROM (SELECT id + 1 AS id FROM c) GROUP BY id"])
def test_a_query_that_reads_the_whole_table_is_refused_with_its_place(tmp_path: Path, query: str) -> None:
    script = tmp_path / "s.sql"
    script.write_text(
        "CREATE TABLE c (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH\n"
        "  ('connector' = 'redis', 'url' = 'redis://localhost/0', 'type' = 'hash');\n"
        f"CREATE TABLE o (n BIGINT) WITH ('connector' = 'print');\nINSERT INTO o {query};\n"
    )
    with pytest.raises(PipelineError) as caught:
        compile_pipeline(script)
    (problem,) = caught.value.diagnostics
    assert problem.message == "table 'c' can only be asked by key: connector 'redis' is no source"
    assert problem.location is not None
    assert "FOR SYSTEM_TIME AS OF" in (problem.hint or "")
