"""Tables of a real PostgreSQL as sinks: appended, changed by key, once."""

from __future__ import annotations

import datetime as dt
import threading
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from flowrun.api.sink import Committable
from flowrun.api.source import Delivery
from flowrun.connectors.jdbc.sink import JdbcSink
from flowrun.core.schema import Schema
from flowrun.core.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    STRING,
    DataType,
    array,
    decimal,
    time,
    timestamp,
    timestamp_ltz,
)
from flowrun.errors import ConnectorError, DataError
from flowrun.testing.connector_conformance import check_sink, writer_context
from tests.connectors.jdbc.tables import batch, options_of, sink
from tests.servers.postgres import PostgresDatabase, PostgresServer

pytestmark = pytest.mark.exhaustive

SCHEMA = Schema.of(id=BIGINT, v=STRING)
INSTANT = dt.datetime(2020, 5, 17, 10, 20, 30, 123456, tzinfo=dt.UTC)
UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
VALUES: list[tuple[str, DataType, Any, str | None]] = [
    ("smallint", INT, -7, None),
    ("bigint", BIGINT, 2**63 - 1, None),
    ("double precision", DOUBLE, float("nan"), "NaN"),
    ("double precision", DOUBLE, 1e-300, None),
    ("numeric(10,2)", decimal(10, 2), Decimal("-0.05"), None),
    ("numeric", decimal(38, 18), Decimal("0.000000000000000001"), None),
    ("boolean", BOOLEAN, False, "false"),
    ("text", STRING, "", None),
    ("text", STRING, 'a,"b"\n\\.\r\n\t\\N', None),
    ("text", STRING, "grüße 🎉", None),
    ("bytea", BYTES, b"\x00\xff", "\\x00ff"),
    ("date", DATE, dt.date(1, 1, 1), None),
    ("time", time(6), dt.time(12, 34, 56, 789123), None),
    ("timestamp", timestamp(6), INSTANT.replace(tzinfo=None), None),
    ("timestamp", timestamp(3), dt.datetime(1969, 12, 31, 23, 59, 59, 999000), "1969-12-31 23:59:59.999"),
    ("timestamptz", timestamp_ltz(6), INSTANT, "2020-05-17 10:20:30.123456+00"),
    ("jsonb", STRING, '{"a": [1, null]}', None),
    ("uuid", STRING, UUID, None),
    ("int[]", array(INT), [1, None, 3], "{1,NULL,3}"),
    ("text[]", array(STRING), ['a,"\\', None, "", "NULL"], '{"a,\\"\\\\",NULL,"","NULL"}'),
    ("date[]", array(DATE), [dt.date(2020, 1, 1)], "{2020-01-01}"),
    ("text[]", array(STRING), [], "{}"),
]


def write(made: JdbcSink, *batches: Any) -> None:
    writer = made.create_writer(writer_context())
    writer.open()
    for one in batches:
        writer.write(one)
    writer.flush(True)
    assert writer.prepare_commit() == ()
    writer.close()


def test_values_of_every_type_are_written_exactly(postgres: PostgresDatabase) -> None:
    columns = ", ".join(f"c{i} {kind}" for i, (kind, *_) in enumerate(VALUES))
    postgres.execute(f"CREATE TABLE t ({columns}, left_out int DEFAULT 5)")
    schema = Schema.from_pairs((f"c{i}", declared) for i, (_, declared, *_) in enumerate(VALUES))
    write(sink(options_of(postgres, "t"), schema), batch(schema, [tuple(v[2] for v in VALUES), (None,) * len(VALUES)]))
    texts = postgres.execute(f"SELECT {', '.join(f'c{i}::text' for i in range(len(VALUES)))}, left_out FROM t")
    for i, (kind, declared, value, text) in enumerate(VALUES):
        expected = text if text is not None else value if isinstance(value, str) else str(value)
        if isinstance(value, Decimal | float) and text is None:
            assert Decimal(texts[0][i]) == Decimal(str(value)), kind
        elif isinstance(value, dt.datetime | dt.time | dt.date) and text is None:
            assert texts[0][i] == str(value), f"{kind} as {declared}"
        else:
            assert texts[0][i] == expected, f"{kind} as {declared}"
    assert texts[0][-1] == 5
    assert set(texts[1][:-1]) == {None}


def test_changes_are_applied_by_key(postgres: PostgresDatabase) -> None:
    postgres.execute("CREATE TABLE t (id bigint PRIMARY KEY, v text, kept int DEFAULT 1)")
    postgres.execute("INSERT INTO t VALUES (1, 'old', 7), (2, 'old', 7), (9, 'other', 7)")
    made = sink(options_of(postgres, "t"), SCHEMA, ("id",))
    first = batch(
        SCHEMA, [(1, "old"), (1, "new"), (2, "old"), (3, "x"), (3, None), (4, "gone"), (4, "gone")], "BADIAID"
    )
    again = batch(SCHEMA, [(5, "a"), (3, "again"), (8, "never there")], "IAD")
    write(made, first, again)
    assert postgres.execute("SELECT * FROM t ORDER BY id") == [
        (1, "new", 7),
        (3, "again", 1),
        (5, "a", 1),
        (9, "other", 7),
    ]
    write(made, batch(SCHEMA, [(1, None), (3, None), (5, None), (9, None)], "DDDD"))
    assert postgres.execute("SELECT * FROM t") == []


def test_keys_of_several_columns_alone(postgres: PostgresDatabase) -> None:
    postgres.execute('CREATE TABLE t (b text, "A" int); CREATE UNIQUE INDEX ON t ("A", b)')
    schema = Schema.of(A=INT, b=STRING)
    made = sink(options_of(postgres, "t"), schema, ("b", "A"))
    write(made, batch(schema, [(1, "x"), (1, "y"), (1, "x"), (2, "x")], "IIII"))
    write(made, batch(schema, [(1, "x"), (1, "y")], "AD"))
    assert postgres.execute('SELECT "A", b FROM t ORDER BY 1, 2') == [(1, "x"), (2, "x")]


@pytest.mark.parametrize(
    ("ddl", "key", "message"),
    [
        ("CREATE TABLE t (id bigint, v text)", ("id",), r"no primary key or unique index on \(id\)"),
        ("CREATE TABLE t (id bigint, v text); CREATE UNIQUE INDEX ON t (id) WHERE v = ''", ("id",), "no primary key"),
        ("CREATE TABLE t (id bigint)", (), r"(?s)no column 'v'"),
        ("CREATE TABLE u (id bigint)", (), "no table 't'"),
        ("CREATE VIEW t AS SELECT 1 AS id, 'x' AS v", (), "cannot copy to view"),
        ("CREATE TABLE t (id bigint, v text, PRIMARY KEY (id) INCLUDE (v))", ("id", "v"), r"unique index on \(id, v\)"),
        (
            "CREATE TABLE t (id bigint, v text GENERATED ALWAYS AS ('x') STORED)",
            (),
            "column 'v' .* is generated by the database",
        ),
        ("CREATE TABLE t (id date, v text)", (), "column 'id' .* is date, into which BIGINT cannot be written"),
    ],
)
def test_tables_that_do_not_fit_are_refused(
    postgres: PostgresDatabase, ddl: str, key: tuple[str, ...], message: str
) -> None:
    postgres.execute(ddl)
    with pytest.raises(ConnectorError, match=message):
        write(sink(options_of(postgres, "t"), SCHEMA, key), batch(SCHEMA, [(1, "x")]))


@pytest.mark.parametrize(
    ("column", "declared"),
    [
        ("date", timestamp(3)),
        ("time", timestamp(3)),
        ("timestamp", time(3)),
        ("boolean", INT),
        ("integer", BOOLEAN),
        ("integer", DOUBLE),
        ("integer", decimal(5, 2)),
        ("date[]", array(timestamp(3))),
        ("integer", array(INT)),
        ("bytea", INT),
    ],
)
def test_types_of_which_the_server_would_take_a_part(
    postgres: PostgresDatabase, column: str, declared: DataType
) -> None:
    postgres.execute(f"CREATE TABLE t (v {column})")
    made = sink(options_of(postgres, "t"), Schema.of(v=declared))
    with pytest.raises(ConnectorError, match=r"into which .* cannot be written"):
        made.create_writer(writer_context()).open()


def test_keys_of_indexes_that_hold_more_and_of_identity_columns(postgres: PostgresDatabase) -> None:
    postgres.execute("CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY, v text, PRIMARY KEY (id) INCLUDE (v))")
    made = sink(options_of(postgres, "t"), SCHEMA, ("id",))
    write(made, batch(SCHEMA, [(1, "a"), (2, "b")]), batch(SCHEMA, [(1, "c")], "A"))
    assert postgres.execute("SELECT * FROM t ORDER BY id") == [(1, "c"), (2, "b")]


def test_keys_that_are_equal_in_the_table_only(postgres: PostgresDatabase) -> None:
    postgres.execute("CREATE TABLE t (id bigint, v char(3) PRIMARY KEY)")
    with pytest.raises(ConnectorError, match=r"(?s)second time.*keys that differ as declared are equal in the table"):
        write(sink(options_of(postgres, "t"), SCHEMA, ("v",)), batch(SCHEMA, [(1, "a"), (2, "a ")]))


@pytest.mark.parametrize(
    ("ddl", "row"),
    [
        ("CREATE TABLE t (id int, v text)", (2**40, "x")),
        ("CREATE TABLE t (id bigint, v text NOT NULL)", (1, None)),
        ("CREATE TABLE t (id bigint, v varchar(2))", (1, "abc")),
        ("CREATE TABLE t (id bigint, v jsonb)", (1, "no json")),
        ("CREATE TABLE t (id bigint CHECK (id > 5), v text)", (1, "x")),
        ("CREATE TABLE t (id bigint PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'there')", (1, "x")),
    ],
)
def test_rows_that_the_table_refuses_are_errors_of_data(postgres: PostgresDatabase, ddl: str, row: Any) -> None:
    postgres.execute(ddl)
    with pytest.raises(DataError, match="refuses a value"):
        write(sink(options_of(postgres, "t"), SCHEMA), batch(SCHEMA, [(10, "ok"), row]))
    assert len(postgres.execute("SELECT * FROM t WHERE v::text IS DISTINCT FROM 'there'")) == 0


def test_texts_with_zero_bytes_are_found_before_they_are_written() -> None:
    made = sink({"url": "jdbc:postgresql://h/d", "table-name": "t"}, SCHEMA)
    check = made.create_check()
    assert check is not None
    with pytest.raises(DataError, match="zero byte") as raised:
        check(batch(SCHEMA, [(1, "a"), (2, None), (3, "b\0")]).columns)
    assert raised.value.row == 2


def test_rows_are_written_when_there_are_enough_or_after_a_while(postgres: PostgresDatabase) -> None:
    postgres.execute("CREATE TABLE t (id bigint, v text)")
    options = options_of(postgres, "t", sink__buffer_flush__max_rows=3, sink__buffer_flush__interval="5 s")
    context = writer_context()
    writer = sink(options, SCHEMA).create_writer(context)
    writer.open()

    def there() -> int:
        return int(postgres.execute("SELECT count(*) FROM t")[0][0])

    writer.write(batch(SCHEMA, [(1, "a"), (2, "b")]))
    assert there() == 0
    context.processing_time.advance(4_999)  # type: ignore[attr-defined]  # a clock that the test moves
    assert there() == 0
    context.processing_time.advance(1)  # type: ignore[attr-defined]
    assert there() == 2
    writer.write(batch(SCHEMA, [(3, "a"), (4, "b")]))
    writer.write(batch(SCHEMA, [(5, "c")]))
    assert there() == 5
    writer.close()


def test_writing_goes_on_after_the_server_was_restarted(
    postgres_server: PostgresServer, postgres: PostgresDatabase
) -> None:
    postgres.execute("CREATE TABLE t (id bigint PRIMARY KEY, v text)")
    paused: list[float] = []
    made = sink(options_of(postgres, "t"), SCHEMA, ("id",))
    writer = made.create_writer(replace(writer_context(), pause=paused.append))
    writer.open()
    writer.write(batch(SCHEMA, [(1, "a")]))
    writer.flush(False)
    postgres_server.kill()
    postgres_server.start()
    writer.write(batch(SCHEMA, [(1, "b"), (2, "c")]))
    writer.flush(True)
    writer.close()
    assert paused == [1000.0]
    assert postgres.execute("SELECT * FROM t ORDER BY id") == [(1, "b"), (2, "c")]


def test_a_server_that_hangs_is_given_up(postgres_server: PostgresServer, postgres: PostgresDatabase) -> None:
    postgres.execute("CREATE TABLE t (id bigint, v text)")
    options = options_of(postgres, "t", connection__max_retry_timeout="3 s", sink__max_retries=0)
    writer = sink(options, SCHEMA).create_writer(writer_context())
    writer.open()
    writer.write(batch(SCHEMA, [(1, "a")]))
    postgres_server.hang()
    with pytest.raises(ConnectorError, match="did not answer for 3 s"):
        writer.flush(True)
    writer.close()
    postgres_server.go_on()
    assert not [t for t in threading.enumerate() if t.name == "writes t" and not _ends(t)]


def _ends(thread: threading.Thread) -> bool:
    thread.join(20)
    return not thread.is_alive()


# -- exactly once


def exactly(postgres: PostgresDatabase, key: tuple[str, ...] = ()) -> JdbcSink:
    made = sink(options_of(postgres, "t", sink__delivery_guarantee="exactly-once"), SCHEMA, key)
    assert made.delivery is Delivery.EXACTLY_ONCE
    return made


def staged(made: JdbcSink, staging: Path, one: Any, attempt: str = "a") -> list[Committable]:
    writer = made.create_writer(writer_context(staging=str(staging), attempt=attempt))
    writer.open()
    writer.write(one)
    writer.flush(True)
    found = list(writer.prepare_commit())
    writer.close()
    return found


def test_it_keeps_the_contract_of_sinks(postgres: PostgresDatabase, tmp_path: Path) -> None:
    postgres.execute("CREATE TABLE t (id bigint, v text)")
    batches = [batch(SCHEMA, [(1, "a"), (2, None)]), batch(SCHEMA, [(3, "")]), batch(SCHEMA, [(4, "d"), (5, "e")])]
    staging = tmp_path / "state" / "staged"
    check_sink(exactly(postgres), batches, lambda: postgres.execute("SELECT id, v FROM t"), staging=str(staging))


def test_changes_wait_for_their_commit(postgres: PostgresDatabase, tmp_path: Path) -> None:
    postgres.execute("CREATE TABLE t (id bigint PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'old'), (2, 'old')")
    made = exactly(postgres, ("id",))
    committables = staged(
        made, tmp_path / "staged", batch(SCHEMA, [(1, "old"), (1, "new"), (2, "old"), (3, "x")], "BADI")
    )
    assert postgres.execute("SELECT * FROM t ORDER BY id") == [(1, "old"), (2, "old")]
    made.create_committer().commit(committables)
    assert postgres.execute("SELECT * FROM t ORDER BY id") == [(1, "new"), (3, "x")]


def test_a_commit_whose_answer_was_lost_is_not_made_twice(
    postgres_server: PostgresServer, postgres: PostgresDatabase, tmp_path: Path
) -> None:
    """A zombie still commits, while the job that was started after it commits the same rows."""
    postgres.execute("CREATE TABLE t (id bigint, v text)")
    made = exactly(postgres)
    (committable,) = staged(made, tmp_path / "staged", batch(SCHEMA, [(1, "a"), (2, "b")]))
    payload = committable.payload
    zombie = made.connect()
    zombie.committed_number(str(payload["writer"]))
    assert zombie.record_number(str(payload["writer"]), int(str(payload["number"])))
    zombie.append(batch(SCHEMA, [(1, "a"), (2, "b")]).columns)
    errors: list[BaseException] = []

    def commit() -> None:
        try:
            made.create_committer().commit([committable])
        except BaseException as error:
            errors.append(error)

    waiting = threading.Thread(target=commit)
    waiting.start()
    _wait_for_a_lock(postgres)
    zombie.commit()
    zombie.close()
    waiting.join(60)
    assert not errors
    assert postgres.execute("SELECT id, v FROM t ORDER BY id") == [(1, "a"), (2, "b")]
    assert postgres.execute("SELECT number FROM flowrun_commits") == [(payload["number"],)]


def test_the_table_of_commits_is_made_by_many_at_once(postgres: PostgresDatabase) -> None:
    postgres.execute("CREATE TABLE t (id bigint, v text)")
    numbers: list[int] = []

    def ask(writer: int) -> None:
        session = exactly(postgres).connect()
        numbers.append(session.committed_number(str(writer)))
        session.close()

    asking = [threading.Thread(target=ask, args=[i]) for i in range(6)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(60)
    assert numbers == [0] * 6


def _wait_for_a_lock(postgres: PostgresDatabase) -> None:
    for _ in range(1000):
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        if postgres.execute(waiting):
            return
    raise AssertionError("nobody waits for the transaction that is open")


@pytest.mark.parametrize("moment", ["before", "rows", "committed"])
def test_a_server_killed_in_a_commit_has_each_row_once(
    postgres_server: PostgresServer,
    postgres: PostgresDatabase,
    tmp_path: Path,
    moment: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    postgres.execute("CREATE TABLE t (id bigint, v text)")
    made = exactly(postgres)
    committables = staged(made, tmp_path / "staged", batch(SCHEMA, [(i, "x" * 100) for i in range(5000)]))
    from flowrun.connectors.jdbc.postgres.writing import PostgresWriter

    killed: list[str] = []
    methods = {"before": "record_number", "rows": "append", "committed": "commit"}
    original = getattr(PostgresWriter, methods[moment])

    def kill_once(self: PostgresWriter, *arguments: Any) -> Any:
        given = original(self, *arguments)
        started = moment != "committed" or postgres.execute("SELECT 1 FROM t LIMIT 1")
        if started and not killed:
            killed.append(moment)
            postgres_server.kill()
            postgres_server.start()
            if moment == "committed":
                raise ConnectorError("the answer was lost", retryable=True)
        return given

    monkeypatch.setattr(PostgresWriter, methods[moment], kill_once)
    committer = made.create_committer()
    with pytest.raises(ConnectorError) as raised:
        committer.commit(committables)
    assert raised.value.retryable
    assert killed
    committer.commit(committables)
    assert postgres.execute("SELECT count(*), count(DISTINCT id) FROM t") == [(5000, 5000)]
