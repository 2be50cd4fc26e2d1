"""Tables of files as sinks: appended, changed by key, once."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from flowrun.api.sink import Committable
from flowrun.connectors.jdbc.sink import JdbcSink
from flowrun.core.schema import Schema
from flowrun.core.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    DataType,
    array,
    decimal,
    row,
    time,
    timestamp,
    timestamp_ltz,
)
from flowrun.errors import ConnectorError, DataError, OptionError
from flowrun.testing.connector_conformance import check_sink, writer_context
from tests.connectors.jdbc.files import FileDatabase
from tests.connectors.jdbc.tables import batch, options_of, read, sink, source

pytestmark = pytest.mark.exhaustive

SCHEMA = Schema.of(id=BIGINT, v=STRING)
INSTANT = dt.datetime(2020, 5, 17, 10, 20, 30, 123456, tzinfo=dt.UTC)
VALUES: list[tuple[str, str, DataType, Any]] = [
    ("int", "integer", INT, -7),
    ("bigint", "integer", BIGINT, 2**63 - 1),
    ("double", "real", DOUBLE, 1e-300),
    ("float", "real", FLOAT, 1.5),
    ("decimal(10,2)", "numeric", decimal(10, 2), Decimal("-0.05")),
    ("decimal(38,18)", "text", decimal(38, 18), Decimal("12345678901234567890.000000000000000001")),
    ("boolean", "boolean", BOOLEAN, False),
    ("varchar", "text", STRING, ""),
    ("varchar", "varchar(9)", STRING, 'a,"b"\n\\.\r\n\t\\N\0'),
    ("blob", "blob", BYTES, b"\x00\xff"),
    ("blob", "blob", BYTES, b""),
    ("date", "date", DATE, dt.date(1, 1, 1)),
    ("time", "time", time(6), dt.time(12, 34, 56, 789123)),
    ("timestamp", "datetime", timestamp(6), INSTANT.replace(tzinfo=None)),
    ("timestamp", "text", timestamp(3), dt.datetime(1969, 12, 31, 23, 59, 59, 999000)),
    ("timestamptz", "text", timestamp_ltz(6), INSTANT),
]
OF_DUCKDB: list[tuple[str, str, DataType, Any]] = [
    ("double", "", DOUBLE, float("inf")),
    ("int[]", "", array(INT), [1, None, 3]),
    ("struct(a int, b varchar)", "", row(("a", INT), ("b", STRING)), {"a": 1, "b": None}),
]


def write(made: JdbcSink, *batches: Any) -> None:
    writer = made.create_writer(writer_context())
    try:
        writer.open()
        for one in batches:
            writer.write(one)
        writer.flush(True)
        assert writer.prepare_commit() == ()
    finally:
        writer.close()


def test_values_of_every_type_come_back_as_they_were(file: FileDatabase) -> None:
    values = VALUES + (OF_DUCKDB if file.scheme == "duckdb" else [])
    kinds = [v[0] if file.scheme == "duckdb" else v[1] for v in values]
    file.execute(
        f"CREATE TABLE t ({', '.join(f'c{i} {kind}' for i, kind in enumerate(kinds))}, left_out int DEFAULT 5)"
    )
    schema = Schema.from_pairs((f"c{i}", declared) for i, (_, _, declared, _) in enumerate(values))
    write(sink(options_of(file, "t"), schema), batch(schema, [tuple(v[3] for v in values), (None,) * len(values)]))
    first, second = read(source(options_of(file, "t"), schema))
    for i, (_, _, declared, value) in enumerate(values):
        assert first[i] == value, f"{kinds[i]} as {declared}"
    assert set(second) == {None}
    assert file.execute("SELECT DISTINCT left_out FROM t") == [(5,)]


def test_texts_go_into_types_that_are_read_from_texts(duckdb_file: FileDatabase) -> None:
    duckdb_file.execute("CREATE TABLE t (u UUID PRIMARY KEY, j JSON, e ENUM ('sad', 'ok'))")
    schema = Schema.of(u=STRING, j=STRING, e=STRING)
    rows = [("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", '{"a": 1}', "ok")]
    made = sink(options_of(duckdb_file, "t"), schema, ("u",))
    write(made, batch(schema, rows), batch(schema, [(rows[0][0], "[]", "sad")], "A"))
    assert duckdb_file.execute("SELECT u::varchar, j, e FROM t") == [(rows[0][0], "[]", "sad")]
    write(made, batch(schema, rows, "D"))
    assert duckdb_file.execute("SELECT * FROM t") == []


def test_changes_are_applied_by_key(file: FileDatabase) -> None:
    file.execute("CREATE TABLE t (id bigint PRIMARY KEY, v text, kept int DEFAULT 1)")
    file.execute("INSERT INTO t VALUES (1, 'old', 7), (2, 'old', 7), (9, 'other', 7)")
    made = sink(options_of(file, "t", sink__buffer_flush__max_rows=0), SCHEMA, ("id",))
    changes = [(1, "old"), (1, "new"), (2, "old"), (3, "x"), (3, None), (4, "gone"), (4, "gone")]
    write(
        made,
        batch(SCHEMA, changes, "BADIAID"),
        batch(SCHEMA, [(5, "a"), (3, "again"), (8, "never there")], "IAD"),
        batch(SCHEMA, [(5, "a")], "D"),
        batch(SCHEMA, [(5, "back")], "I"),
    )
    expected = [(1, "new", 7), (3, "again", 1), (5, "back", 1), (9, "other", 7)]
    assert file.execute("SELECT * FROM t ORDER BY id") == expected
    write(made, batch(SCHEMA, [(1, None), (3, None), (5, None), (9, None)], "DDDD"))
    assert file.execute("SELECT * FROM t") == []


def test_keys_of_several_columns_alone(file: FileDatabase) -> None:
    file.execute('CREATE TABLE t (b text, "A" int); CREATE UNIQUE INDEX i ON t ("A", b)')
    schema = Schema.of(A=INT, b=STRING)
    made = sink(options_of(file, "t"), schema, ("b", "A"))
    write(made, batch(schema, [(1, "x"), (1, "y"), (1, "x"), (2, "x")], "IIII"))
    write(made, batch(schema, [(1, "x"), (1, "y")], "AD"))
    assert file.execute('SELECT "A", b FROM t ORDER BY 1, 2') == [(1, "x"), (2, "x")]


@pytest.mark.parametrize(
    ("ddl", "key", "message"),
    [
        ("CREATE TABLE t (id bigint, v text)", ("id",), r"no primary key or unique index on \(id\)"),
        ("CREATE TABLE t (id bigint)", (), r"(?s)no column 'v'"),
        ("CREATE TABLE u (id bigint)", (), "no table 't'"),
        ("CREATE TABLE t (id bigint, v blob)", ("id",), "no primary key|into which STRING cannot be written"),
    ],
)
def test_tables_that_do_not_fit_are_refused(file: FileDatabase, ddl: str, key: tuple[str, ...], message: str) -> None:
    file.execute(ddl)
    with pytest.raises(ConnectorError, match=message):
        write(sink(options_of(file, "t"), SCHEMA, key), batch(SCHEMA, [(1, "x")]))


@pytest.mark.parametrize(
    ("scheme", "kind", "declared"),
    [
        ("duckdb", "int", DOUBLE),
        ("duckdb", "int", decimal(10, 2)),
        ("duckdb", "timestamp", timestamp_ltz(3)),
        ("duckdb", "int", array(INT)),
        ("sqlite", "int", STRING),
        ("sqlite", "text", BIGINT),
        ("sqlite", "real", BIGINT),
        ("sqlite", "numeric", decimal(16, 2)),
        ("sqlite", "text", DOUBLE),
    ],
)
def test_columns_that_would_make_other_values_of_those_that_are_written(
    request: pytest.FixtureRequest, scheme: str, kind: str, declared: DataType
) -> None:
    file: FileDatabase = request.getfixturevalue(f"{scheme}_file")
    file.execute(f"CREATE TABLE t (c {kind})")
    schema = Schema.of(c=declared)
    with pytest.raises(ConnectorError, match=f"(?i)column 'c' of .* is {kind}.*, into which .* cannot be written"):
        write(sink(options_of(file, "t"), schema), batch(schema, [(None,)]))


def test_what_sqlite_cannot_hold(sqlite_file: FileDatabase) -> None:
    with pytest.raises(OptionError, match=r"(?s)no values like those of column 'a'.*JSON_OBJECT"):
        sink(options_of(sqlite_file, "t"), Schema.of(a=array(INT)))
    check = sink(options_of(sqlite_file, "t"), Schema.of(f=DOUBLE)).create_check()
    assert check is not None
    with pytest.raises(DataError, match="column 'f' holds NaN") as raised:
        check(batch(Schema.of(f=DOUBLE), [(1.0,), (None,), (float("nan"),)]).columns)
    assert raised.value.row == 2


@pytest.mark.parametrize(
    ("ddl", "rejected"),
    [
        ("CREATE TABLE t (id bigint, v text NOT NULL)", (1, None)),
        ("CREATE TABLE t (id bigint CHECK (id > 5), v text)", (1, "x")),
        ("CREATE TABLE t (id bigint PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'there')", (1, "x")),
    ],
)
def test_rows_that_the_table_refuses_are_errors_of_data(file: FileDatabase, ddl: str, rejected: Any) -> None:
    file.execute(ddl)
    with pytest.raises(DataError, match=r"refuses a value: .*(?i:constraint|duplicate)"):
        write(sink(options_of(file, "t"), SCHEMA), batch(SCHEMA, [(10, "ok"), rejected]))
    assert file.execute("SELECT * FROM t WHERE v = 'ok'") == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to all files")
def test_a_file_that_may_not_be_written_to_is_read_and_no_more(file: FileDatabase) -> None:
    file.execute("CREATE TABLE t (id bigint, v text)")
    file.path.chmod(0o444)
    file.path.parent.chmod(0o555)
    try:
        assert read(source(options_of(file, "t"), SCHEMA)) == []
        with pytest.raises(ConnectorError, match=r"check the permissions|check its permissions"):
            write(sink(options_of(file, "t"), SCHEMA), batch(SCHEMA, [(1, "x")]))
    finally:
        file.path.parent.chmod(0o755)


@pytest.mark.parametrize(("scheme", "more"), [("duckdb", ";access_mode=READ_ONLY"), ("sqlite", "?mode=ro")])
def test_an_address_that_says_read_only(request: pytest.FixtureRequest, scheme: str, more: str) -> None:
    file: FileDatabase = request.getfixturevalue(f"{scheme}_file")
    file.execute("CREATE TABLE t (id bigint, v text); INSERT INTO t VALUES (1, 'x')")
    options = {"url": file.jdbc_url + more, "table-name": "t"}
    assert read(source(options, SCHEMA)) == [(1, "x")]
    assert not source(options, SCHEMA).in_process
    with pytest.raises(
        ConnectorError, match=r"(?s)is open for reading only.*leave access_mode|cannot be written to.*leave mode=ro"
    ):
        write(sink(options, SCHEMA), batch(SCHEMA, [(1, "x")]))


# -- exactly once


def exactly(file: FileDatabase, key: tuple[str, ...] = ()) -> JdbcSink:
    return sink(options_of(file, "t", sink__delivery_guarantee="exactly-once"), SCHEMA, key)


def staged(made: JdbcSink, staging: Path, *batches: Any) -> list[Committable]:
    writer = made.create_writer(writer_context(staging=str(staging)))
    writer.open()
    for one in batches:
        writer.write(one)
    writer.flush(True)
    found = list(writer.prepare_commit())
    writer.close()
    return found


def test_it_keeps_the_contract_of_sinks(file: FileDatabase, tmp_path: Path) -> None:
    file.execute("CREATE TABLE t (id bigint, v text)")
    batches = [batch(SCHEMA, [(i, "a"), (i + 1, None)]) for i in range(0, 6, 2)]
    check_sink(exactly(file), batches, lambda: file.execute("SELECT id, v FROM t"), staging=str(tmp_path / "staged"))


def test_changes_of_one_key_in_one_transaction(file: FileDatabase, tmp_path: Path) -> None:
    file.execute("CREATE TABLE t (id bigint PRIMARY KEY, v text)")
    options = options_of(file, "t", sink__delivery_guarantee="exactly-once", sink__buffer_flush__max_rows=0)
    made = sink(options, SCHEMA, ("id",))
    rows = [("I", "a"), ("D", "a"), ("I", "b"), ("A", "c"), ("D", "c"), ("I", "d")]
    found = staged(made, tmp_path / "staged", *(batch(SCHEMA, [(1, v)], kind) for kind, v in rows))
    committer = made.create_committer()
    assert committer is not None
    committer.commit(found)
    assert file.execute("SELECT * FROM t") == [(1, "d")]
    assert len(file.execute("SELECT writer, number FROM flowrun_commits")) == 1


def test_many_subtasks_write_to_one_file_at_the_same_time(file: FileDatabase) -> None:
    file.execute("CREATE TABLE t (id bigint PRIMARY KEY, v text)")
    errors: list[BaseException] = []

    def work(subtask: int) -> None:
        try:
            made = sink(options_of(file, "t", sink__buffer_flush__max_rows=0), SCHEMA, ("id",))
            write(made, *(batch(SCHEMA, [(j, f"{subtask}") for j in range(subtask, 400, 3)]) for _ in range(10)))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert file.execute("SELECT id, v FROM t ORDER BY id") == [(i, f"{i % 3}") for i in range(400)]


HOLD = """
import sys
if sys.argv[1] == "duckdb":
    import duckdb
    held = duckdb.connect(sys.argv[2])
else:
    import sqlite3
    held = sqlite3.connect(sys.argv[2], isolation_level=None)
    held.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_file_that_another_process_keeps(file: FileDatabase) -> None:
    file.execute("CREATE TABLE t (id bigint, v text)")
    options = options_of(file, "t", connection__max_retry_timeout="1 s", sink__max_retries=0)
    words = [sys.executable, "-c", HOLD, file.scheme, str(file.path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        message = rf"(?s)is open in another process: .*PID {holder.pid}.*READ_ONLY|was locked by somebody else for 1 s.*max-retry-timeout"
        with pytest.raises(ConnectorError, match=message) as raised:
            write(sink(options, SCHEMA), batch(SCHEMA, [(1, "x")]))
        assert raised.value.retryable
        holder.communicate("")
    write(sink(options, SCHEMA), batch(SCHEMA, [(1, "x")]))
    assert file.execute("SELECT * FROM t") == [(1, "x")]
