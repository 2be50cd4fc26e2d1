"""Tables of a real PostgreSQL as sources: types, filters, splits, and going on after a stop."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from flowrun.api.connector import Comparison, PushedFilter
from flowrun.core.schema import Schema
from flowrun.core.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TINYINT,
    DataType,
    array,
    char,
    decimal,
    time,
    timestamp,
    timestamp_ltz,
)
from flowrun.errors import ConnectorError, DataError, OptionError
from flowrun.testing.connector_conformance import SourceDrive, check_source
from tests.connectors.jdbc.tables import options_of, read, source
from tests.servers.postgres import PostgresDatabase, PostgresServer

pytestmark = pytest.mark.exhaustive

UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
INSTANT = dt.datetime(2020, 5, 17, 10, 20, 30, 123456, tzinfo=dt.UTC)
PLAIN = INSTANT.replace(tzinfo=None)
VALUES: list[tuple[str, str, DataType, Any]] = [
    ("smallint", "-32768", SMALLINT, -32768),
    ("smallint", "7", TINYINT, 7),
    ("int", "2147483647", INT, 2147483647),
    ("bigint", "-9223372036854775808", BIGINT, -(2**63)),
    ("bigint", "12", INT, 12),
    ("int", "12", DOUBLE, 12.0),
    ("int", "12", decimal(5, 2), Decimal("12.00")),
    ("int", "12", STRING, "12"),
    ("numeric(10,0)", "99", BIGINT, 99),
    ("real", "1.5", FLOAT, 1.5),
    ("double precision", "1e-300", DOUBLE, 1e-300),
    ("double precision", "'Infinity'", DOUBLE, float("inf")),
    ("numeric(10,2)", "12345678.91", decimal(10, 2), Decimal("12345678.91")),
    ("numeric(10,2)", "-0.01", decimal(38, 18), Decimal("-0.010000000000000000")),
    ("numeric", "12345678901234567890123456.789", decimal(38, 10), Decimal("12345678901234567890123456.7890000000")),
    ("numeric", "0.005", decimal(4, 2), Decimal("0.01")),
    ("numeric(20,10)", "0.0000000001", decimal(20, 10), Decimal("0.0000000001")),
    ("numeric", "1.50", STRING, "1.50"),
    ("money", "12.34", decimal(10, 2), Decimal("12.34")),
    ("boolean", "true", BOOLEAN, True),
    ("text", "'grüße 🎉'", STRING, "grüße 🎉"),
    ("text", "''", STRING, ""),
    ("varchar(5)", "'abc'", STRING, "abc"),
    ("char(4)", "'ab'", char(4), "ab  "),
    ("bytea", r"'\x00ff'", BYTES, b"\x00\xff"),
    ("date", "'1969-12-31'", DATE, dt.date(1969, 12, 31)),
    ("time", "'12:34:56.789'", time(3), dt.time(12, 34, 56, 789000)),
    ("time", "'12:34:56.789123'", time(6), dt.time(12, 34, 56, 789123)),
    ("timestamp", "'2020-05-17 10:20:30.123456'", timestamp(6), PLAIN),
    ("timestamp", "'2020-05-17 10:20:30.123456'", timestamp(3), PLAIN.replace(microsecond=123000)),
    ("timestamp", "'1969-12-31 23:59:59.9999'", timestamp(3), dt.datetime(1969, 12, 31, 23, 59, 59, 999000)),
    ("timestamptz", "'2020-05-17 12:20:30.123456+02'", timestamp_ltz(6), INSTANT),
    ("date", "'2020-05-17'", timestamp(3), dt.datetime(2020, 5, 17)),
    ("json", "'{\"a\": [1, null]}'", STRING, '{"a": [1, null]}'),
    ("jsonb", "'{\"b\":2}'", STRING, '{"b": 2}'),
    ("uuid", f"'{UUID}'", STRING, UUID),
    ("inet", "'10.0.0.1'", STRING, "10.0.0.1/32"),
    ("interval", "'1 day 2 hours'", STRING, "P1DT2H"),
    ("mood", "'sad'", STRING, "sad"),
    ("positive", "5", INT, 5),
    ("amount", "5.5", decimal(10, 2), Decimal("5.50")),
    ("int[]", "'{1,NULL,3}'", array(INT), [1, None, 3]),
    ("text[]", '\'{"a,b",NULL,""}\'', array(STRING), ["a,b", None, ""]),
    ("numeric(10,2)[]", "'{1.5,NULL}'", array(decimal(10, 2)), [Decimal("1.50"), None]),
    ("uuid[]", f"'{{{UUID}}}'", array(STRING), [UUID]),
    (
        "timestamptz[]",
        "'{2020-05-17 10:20:30.123456+00}'",
        array(timestamp_ltz(3)),
        [INSTANT.replace(microsecond=123000)],
    ),
    ("double precision[]", "'{}'", array(DOUBLE), []),
    ("int[]", "'{1,2}'", STRING, "{1,2}"),
]


def test_values_of_every_type_are_read_exactly(postgres: PostgresDatabase) -> None:
    postgres.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN positive AS int CHECK (value > 0);"
        "CREATE DOMAIN amount AS numeric(10, 2)"
    )
    columns = ", ".join(f"c{i} {kind}" for i, (kind, *_) in enumerate(VALUES))
    postgres.execute(f"CREATE TABLE t ({columns})")
    postgres.execute(f"INSERT INTO t VALUES ({', '.join(value for _, value, *_ in VALUES)})")
    postgres.execute("INSERT INTO t (c0) VALUES (NULL)")
    schema = Schema.from_pairs((f"c{i}", declared) for i, (_, _, declared, _) in enumerate(VALUES))
    first, second = read(source(options_of(postgres, "t"), schema))
    for i, (kind, value, declared, expected) in enumerate(VALUES):
        assert first[i] == expected, f"{kind} {value} as {declared}"
    assert set(second) == {None}


@pytest.mark.parametrize(
    ("kind", "declared", "message"),
    [
        ("text", INT, "is text, which cannot be read as INT"),
        ("timestamptz", timestamp(3), "declare it TIMESTAMP_LTZ"),
        ("timestamp", timestamp_ltz(3), "declare it TIMESTAMP"),
        ("numeric", BIGINT, "is numeric, which cannot be read as BIGINT"),
        ("bytea", STRING, "is bytea"),
        ("int[]", INT, r"is integer\[\]"),
        ("text", array(STRING), "is text, which cannot be read as ARRAY<STRING>"),
        ("double precision", FLOAT, "is double precision"),
    ],
)
def test_columns_of_other_types_are_named(
    postgres: PostgresDatabase, kind: str, declared: DataType, message: str
) -> None:
    postgres.execute(f"CREATE TABLE t (c {kind})")
    with pytest.raises(ConnectorError, match=message):
        read(source(options_of(postgres, "t"), Schema.of(c=declared)))


@pytest.mark.parametrize(
    ("kind", "value", "declared"),
    [
        ("bigint", "2147483648", INT),
        ("numeric", "1000", decimal(3, 0)),
        ("numeric", "'NaN'", decimal(3, 0)),
        ("numeric(10,2)", "'NaN'", decimal(10, 2)),
        ("timestamp", "'infinity'", timestamp(3)),
        ("date", "'-infinity'", DATE),
    ],
)
def test_values_that_do_not_fit_are_errors(
    postgres: PostgresDatabase, kind: str, value: str, declared: DataType
) -> None:
    postgres.execute(f"CREATE TABLE t (c {kind}); INSERT INTO t VALUES ({value})")
    with pytest.raises((DataError, ConnectorError)):
        read(source(options_of(postgres, "t"), Schema.of(c=declared)))


def test_it_keeps_the_contract_of_sources(postgres: PostgresDatabase) -> None:
    postgres.execute("CREATE TABLE t AS SELECT i AS id, repeat('x', 100) || i AS v FROM generate_series(1, 500) i")
    postgres.execute("DELETE FROM t WHERE id % 7 = 0")
    made = source(options_of(postgres, "t"), Schema.of(v=STRING, id=INT))
    expected = [("x" * 100 + str(i), i) for i in range(1, 501) if i % 7]
    check_source(made, expected, parallelisms=(1, 2), batch_rows=(16, 1024), restarts=2)
    cut = source(
        options_of(
            postgres,
            "t",
            scan__partition__column="id",
            scan__partition__num=3,
            scan__partition__lower_bound=10,
            scan__partition__upper_bound=400,
        ),
        Schema.of(id=INT),
    )
    check_source(cut, [(i,) for i in range(10, 401) if i % 7], parallelisms=(2,), batch_rows=(100,), restarts=2)


def test_rows_that_stay_are_read_once_though_others_change_while_the_job_is_down(postgres: PostgresDatabase) -> None:
    postgres.execute("CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 2000) i")
    made = source(options_of(postgres, "t"), Schema.of(id=INT))
    drive = SourceDrive(made, batch_rows=100)
    while not drive.emitted:
        drive.step()
    enumerator, splits = drive.snapshot()
    read_before = {row[0] for b in drive.emitted for row in zip(*b.columns.to_pydict().values(), strict=True)}
    drive.close()
    postgres.execute(f"DELETE FROM t WHERE id < {min(read_before) + 50}")
    postgres.execute("VACUUM t")
    postgres.execute("INSERT INTO t VALUES (5000)")
    again = SourceDrive(made, batch_rows=64, enumerator_state=enumerator, restored=splits)
    rest = [row[0] for row in again.run()]
    again.close()
    assert sorted(r for r in rest if r != 5000) == sorted(set(range(1, 2001)) - read_before)


def test_a_server_that_hangs_while_it_is_read_is_given_up(
    postgres_server: PostgresServer, postgres: PostgresDatabase
) -> None:
    postgres.execute("CREATE TABLE t AS SELECT i AS id, repeat('x', 200) AS v FROM generate_series(1, 300000) i")
    options = options_of(postgres, "t", connection__max_retry_timeout="3 s")
    drive = SourceDrive(source(options, Schema.of(id=INT, v=STRING)), batch_rows=1000)
    while not drive.emitted:
        drive.step()
    postgres_server.hang()
    try:
        with pytest.raises(ConnectorError, match="did not answer for 3 s") as raised:
            drive.run()
        assert raised.value.retryable
    finally:
        postgres_server.go_on()
        drive.close()


def test_partitions_inheritance_views_and_empty_tables_are_read(postgres: PostgresDatabase) -> None:
    postgres.execute(
        "CREATE TABLE p (id int, r text) PARTITION BY LIST (r); CREATE TABLE p1 PARTITION OF p FOR VALUES IN ('a');"
        "CREATE TABLE p2 (r text, id int); ALTER TABLE p ATTACH PARTITION p2 FOR VALUES IN ('b');"
        "INSERT INTO p VALUES (1, 'a'), (2, 'b'), (3, 'b');"
        "CREATE TABLE parent (id int, r text); CREATE TABLE child (extra int) INHERITS (parent);"
        "INSERT INTO parent VALUES (1, 'x'); INSERT INTO child VALUES (2, 'y', 3);"
        "CREATE VIEW v AS SELECT id * 10 AS id, r FROM p; CREATE MATERIALIZED VIEW m AS SELECT * FROM p; CREATE TABLE e (id int, r text)"
    )
    schema = Schema.of(id=INT, r=STRING)

    def rows(table: str) -> list[tuple[object, ...]]:
        return sorted(read(source(options_of(postgres, table), schema), parallelism=2))

    assert rows("p") == rows("m") == [(1, "a"), (2, "b"), (3, "b")]
    assert rows("parent") == [(1, "x"), (2, "y")]
    assert rows("v") == [(10, "a"), (20, "b"), (30, "b")]
    assert rows("e") == []


def test_a_view_cannot_be_gone_on_with_in_its_middle(postgres: PostgresDatabase) -> None:
    postgres.execute("CREATE VIEW v AS SELECT i AS id FROM generate_series(1, 1000) i")
    made = source(options_of(postgres, "v"), Schema.of(id=INT))
    drive = SourceDrive(made, batch_rows=10)
    while not drive.emitted:
        drive.step()
    enumerator, splits = drive.snapshot()
    drive.close()
    again = SourceDrive(made, enumerator_state=enumerator, restored=splits)
    with pytest.raises(ConnectorError, match="cannot go on in its middle"):
        again.run()
    again.close()


@pytest.mark.parametrize(("key", "lower", "upper"), [("amount", 1, 10), ("at", 1_577_836_800_000, 1_577_836_800_011)])
def test_what_lies_between_two_ranges_of_a_column_is_read(
    postgres: PostgresDatabase, key: str, lower: int, upper: int
) -> None:
    postgres.execute(
        "CREATE TABLE t AS SELECT i, (i / 4.0)::numeric(6, 2) AS amount, timestamp '2020-01-01' + i * interval '300 us' AS at "
        "FROM generate_series(0, 43) i"
    )
    bounds = {"scan__partition__lower_bound": lower, "scan__partition__upper_bound": upper}
    options = options_of(postgres, "t", scan__partition__column=key, scan__partition__num=3, **bounds)
    declared = Schema.of(i=INT, amount=decimal(6, 2), at=timestamp(6))
    found = read(source(options, Schema.of(i=INT), declared))
    expected = range(4, 41) if key == "amount" else range(37)
    assert sorted(found) == [(i,) for i in expected]


def test_no_columns_and_names_in_other_spellings(postgres: PostgresDatabase) -> None:
    postgres.execute('CREATE SCHEMA "Shop"; CREATE TABLE "Shop"."Order s" ("Id" int, "a""b" text, low int)')
    postgres.execute("""INSERT INTO "Shop"."Order s" VALUES (1, 'x', 2), (3, 'y', 4)""")
    schema = Schema.from_pairs([("Id", INT), ('a"b', STRING), ("LOW", INT)])
    assert read(source(options_of(postgres, "Shop.Order s"), schema)) == [(1, "x", 2), (3, "y", 4)]
    assert len(read(source(options_of(postgres, '"Shop"."Order s"'), Schema(()), schema))) == 2
    there = {**options_of(postgres, "Order s"), "url": f"{postgres.jdbc_url}?currentSchema=Shop"}
    assert read(source(there, Schema.of(Id=INT))) == [(1,), (3,)]


FILTERED = Schema.from_pairs(
    [
        ("i", INT),
        ("n", decimal(10, 1)),
        ("s", STRING),
        ("c", char(3)),
        ("u", STRING),
        ("b", BOOLEAN),
        ("d", DATE),
        ("t", timestamp(3)),
        ("z", timestamp_ltz(3)),
        ("y", BYTES),
    ]
)
MS = 1_589_710_830_123
FILTERS: list[tuple[str, list[Any]]] = [
    ("i", [-5, 0, 3]),
    ("n", ["1.5", "0.0", "2"]),
    ("s", ["a", "B", "Ä", "", "z'z", "ab"]),
    ("c", ["a", "a  ", "ab"]),
    ("u", [UUID, UUID.upper(), "no uuid"]),
    ("b", [True, False]),
    ("d", [18399, 0, -800000]),
    ("t", [MS, MS - 1, MS + 1, 0]),
    ("z", [MS, MS - 1, MS + 1, 0]),
    ("y", [b"", b"\x01", b"\x00\xff"]),
]


def test_pushed_filters_leave_out_no_row_that_the_filter_keeps(postgres: PostgresDatabase) -> None:
    """The server may send more rows, never fewer, and it does leave out some."""
    postgres.execute(
        'CREATE TABLE t (i bigint, n numeric, s text COLLATE "en-x-icu", c char(3), u uuid, b boolean, d date, t timestamp, '
        "z timestamptz, y bytea)"
    )
    rows = [
        (
            3,
            "1.5",
            "a",
            "a",
            UUID,
            True,
            "2020-05-17",
            "2020-05-17 10:20:30.123999",
            "2020-05-17 10:20:30.123999+00",
            "\\x01",
        ),
        (
            -5,
            "1.45",
            "B",
            "ab",
            None,
            False,
            "1970-01-01",
            "2020-05-17 10:20:30.123",
            "2020-05-17 10:20:30.122999+00",
            "\\x",
        ),
        (0, "2.04", "Ä", "", UUID, None, "1969-12-31", "1970-01-01 00:00:00", "1970-01-01 00:00:00+00", "\\x00ff"),
        (None, None, None, None, None, None, None, None, None, None),
        (
            7,
            "-3",
            "ab",
            "abc",
            UUID.replace("a0", "b0"),
            True,
            "2021-01-01",
            "2020-05-17 10:20:30.124",
            "2020-05-17 10:20:30.124+00",
            "\\x02",
        ),
        (7, "0.04", "z'z", "a", None, False, "2021-01-01", "2022-01-01", "2022-01-01+00", "\\x0100"),
    ]
    with postgres.connect() as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO t VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)", rows)
    made = source(options_of(postgres, "t"), FILTERED)
    everything = read(made)
    assert len(everything) == len(rows)
    session = made.dialect.open_reader(made.access, in_order=True)
    relation = session.describe()
    left_out = 0
    for column, values in FILTERS:
        asked = [PushedFilter(column, c, v) for v in values for c in Comparison if not c.value.startswith("IS")]
        asked += [PushedFilter(column, Comparison.IS_NULL), PushedFilter(column, Comparison.IS_NOT_NULL)]
        conditions = [made.dialect.condition(relation.column(column), FILTERED.field(column).type, f) for f in asked]
        (sent,) = session.read(f"SELECT {', '.join(c or 'true' for c in conditions)} FROM t ORDER BY ctid")
        for pushed, condition, is_sent in zip(asked, conditions, sent.columns, strict=True):
            for row, here in zip(everything, is_sent.to_pylist(), strict=True):
                assert here or not _keeps(row[FILTERED.index(column)], pushed), (row, condition)
                left_out += not here
    session.close()
    assert left_out > 200
    chosen = (PushedFilter("i", Comparison.GT, 0), PushedFilter("s", Comparison.EQ, "z'z"))
    assert [row[:3] for row in read(source(options_of(postgres, "t"), FILTERED, filters=chosen))] == [
        (7, Decimal("0.0"), "z'z")
    ]


def _keeps(value: Any, pushed: PushedFilter) -> bool:
    """The filter as the engine evaluates it on a value that was read."""
    if pushed.comparison is Comparison.IS_NULL or value is None:
        return value is None and pushed.comparison is Comparison.IS_NULL
    if pushed.comparison is Comparison.IS_NOT_NULL:
        return True
    left: Any = value
    right: Any = pushed.value
    if isinstance(value, dt.datetime):
        left = (value.replace(tzinfo=None) - dt.datetime(1970, 1, 1)) // dt.timedelta(milliseconds=1)
    elif isinstance(value, dt.date):
        left = (value - dt.date(1970, 1, 1)).days
    elif isinstance(value, Decimal):
        right = Decimal(right)
    elif isinstance(value, str):
        left, right = value.encode(), right.encode()
    return {
        Comparison.EQ: left == right,
        Comparison.NE: left != right,
        Comparison.LT: left < right,
        Comparison.LE: left <= right,
        Comparison.GT: left > right,
        Comparison.GE: left >= right,
    }[pushed.comparison]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"table-name": "order"}, r"no table 'order'.*did you mean 'orders'"),
        ({"url": "jdbc:postgresql://127.0.0.1:1/db"}, "connection to server at .*check that it runs"),
        ({"password": "hunter2hunter2"}, "authentication failed.*check 'url', 'username' and 'password'"),
        ({"username": "nobody_known"}, "authentication failed"),
    ],
)
def test_what_cannot_be_reached_is_said_without_secrets(
    postgres: PostgresDatabase, change: dict[str, object], message: str
) -> None:
    postgres.execute("CREATE TABLE orders (id int)")
    with pytest.raises(ConnectorError, match=f"(?s){message}") as raised:
        read(source({**options_of(postgres, "orders"), **change}, Schema.of(id=INT)))
    said = f"{raised.value} {raised.value!r} {raised.value.__cause__!r} {raised.value.__context__!r}"
    assert "hunter2" not in said
    assert postgres.password not in said


def test_a_missing_column_is_named(postgres: PostgresDatabase) -> None:
    postgres.execute("CREATE TABLE orders (order_id int)")
    with pytest.raises(ConnectorError, match=r"(?s)has no column 'oder_id'.*did you mean 'order_id'"):
        read(source(options_of(postgres, "orders"), Schema.of(oder_id=INT)))


def test_the_password_is_no_part_of_what_is_shown(postgres: PostgresDatabase) -> None:
    made = source(options_of(postgres, "t"), Schema.of(id=INT))
    assert postgres.password not in repr(made)
    in_url = source({"url": f"{postgres.jdbc_url}?user=u&password=s3cr3tpw", "table-name": "t"}, Schema.of(id=INT))
    assert "s3cr3tpw" not in repr(in_url)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scan__partition__num": 3}, "needs option 'scan.partition.column'"),
        (
            {
                "scan__partition__column": "id",
                "scan__partition__num": 10**9,
                "scan__partition__lower_bound": 0,
                "scan__partition__upper_bound": 10**12,
            },
            "'scan.partition.num' is at most 100,000",
        ),
        ({"password": "x", "username": None}, "needs option 'username'"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, object], message: str) -> None:
    database = PostgresDatabase("h", 1, "d", "u", "p")
    given = {k: v for k, v in options_of(database, "t", **options).items() if v is not None}
    with pytest.raises(OptionError, match=message):
        source(given, Schema.of(id=INT))
