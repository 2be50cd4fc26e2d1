"""Tables of files as sources: splits, going on after a stop, and what is said of files and tables that do not fit."""

from __future__ import annotations

import random

import pytest

from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, INT, STRING, DataType, array
from flowrun.errors import ConnectorError, OptionError
from flowrun.testing.connector_conformance import SourceDrive, check_source
from tests.connectors.jdbc.files import FileDatabase
from tests.connectors.jdbc.tables import options_of, read, source

ROWS = 10_000


def fill(file: FileDatabase, rows: int = ROWS, columns: str = "id BIGINT, v TEXT") -> None:
    """A table with the rows 1, 2, … without every seventh."""
    file.execute(
        f"CREATE TABLE t ({columns}); INSERT INTO t SELECT i, 'v' || i FROM ({file.numbers(rows)}); DELETE FROM t WHERE id % 7 = 0"
    )


def kept(first: int = 1, last: int = ROWS) -> list[tuple[int, str]]:
    return [(i, f"v{i}") for i in range(first, last + 1) if i % 7]


@pytest.mark.exhaustive
def test_it_keeps_the_contract_of_sources(file: FileDatabase) -> None:
    fill(file)
    made = source(options_of(file, "t"), Schema.of(id=BIGINT, v=STRING))
    check_source(made, kept(), parallelisms=(1, 3), batch_rows=(700, 4096), restarts=3)


@pytest.mark.exhaustive
@pytest.mark.parametrize("key", ["id BIGINT", "id INTEGER PRIMARY KEY"])
def test_ranges_of_a_column(file: FileDatabase, key: str) -> None:
    fill(file, columns=f"{key}, v TEXT")
    cut = {
        "scan__partition__column": "id",
        "scan__partition__num": 5,
        "scan__partition__lower_bound": 10,
        "scan__partition__upper_bound": 8_000,
    }
    made = source(options_of(file, "t", **cut), Schema.of(v=STRING, id=INT), Schema.of(id=INT, v=STRING))
    check_source(made, [(v, i) for i, v in kept(10, 8_000)], parallelisms=(2,), batch_rows=(999,), restarts=3)


@pytest.mark.exhaustive
def test_tables_of_many_pages_and_splits(file: FileDatabase) -> None:
    fill(file, rows=100_000)
    made = source(options_of(file, "t"), Schema.of(id=BIGINT))
    enumerator = made.create_enumerator(3, None)  # type: ignore[arg-type]  # it asks no clock
    enumerator.start()
    assert len(enumerator.snapshot()) > 2  # type: ignore[arg-type]  # a list of splits
    assert sorted(read(made, parallelism=3, batch_rows=8192)) == [(i,) for i, _ in kept(last=100_000)]


def test_rows_that_stay_are_read_once_though_others_come_while_the_job_is_down(file: FileDatabase) -> None:
    fill(file, rows=3000)
    made = source(options_of(file, "t"), Schema.of(id=BIGINT))
    drive = SourceDrive(made, batch_rows=100)
    while not drive.emitted:
        drive.step()
    enumerator, splits = drive.snapshot()
    before = [row[0] for b in drive.emitted for row in zip(*b.columns.to_pydict().values(), strict=True)]
    drive.close()
    file.execute("INSERT INTO t VALUES (5000, 'new')")
    again = SourceDrive(made, batch_rows=64, enumerator_state=enumerator, restored=splits)
    rest = [row[0] for row in again.run()]
    again.close()
    assert sorted(before + [r for r in rest if r != 5000]) == [i for i, _ in kept(last=3000)]


def test_row_ids_that_are_far_apart(sqlite_file: FileDatabase) -> None:
    sqlite_file.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
    rng = random.Random(3)
    ids = sorted({rng.randrange(-(2**63), 2**63) for _ in range(500)} | {-(2**63), 2**63 - 1})
    sqlite_file.execute(
        "INSERT INTO t (id) VALUES "
        + ", ".join(f"({i})" for i in ids).replace(str(-(2**63)), "-9223372036854775807 - 1")
    )
    made = source(options_of(sqlite_file, "t"), Schema.of(id=BIGINT, v=STRING))
    check_source(made, [(i, None) for i in ids], parallelisms=(1, 2), batch_rows=(64,), restarts=2)


def test_views_are_read_but_not_gone_on_with_in_their_middle(file: FileDatabase) -> None:
    fill(file, rows=1000)
    file.execute("CREATE VIEW w AS SELECT id * 10 AS id FROM t")
    made = source(options_of(file, "w"), Schema.of(id=BIGINT))
    assert sorted(read(made, parallelism=2)) == [(i * 10,) for i, _ in kept(last=1000)]
    drive = SourceDrive(made, batch_rows=10)
    while not drive.emitted:
        drive.step()
    enumerator, splits = drive.snapshot()
    drive.close()
    again = SourceDrive(made, enumerator_state=enumerator, restored=splits)
    with pytest.raises(ConnectorError, match="cannot go on in its middle"):
        again.run()
    again.close()


def test_names_in_other_spellings_and_no_columns(file: FileDatabase) -> None:
    file.execute(
        """CREATE TABLE "Order s" ("Id" INTEGER, "a""b" TEXT, low INTEGER); INSERT INTO "Order s" VALUES (1, 'x', 2), (3, 'y', 4)"""
    )
    schema = Schema.from_pairs([("ID", INT), ('a"b', STRING), ("LOW", INT)])
    assert read(source(options_of(file, "order s"), schema)) == [(1, "x", 2), (3, "y", 4)]
    assert len(read(source(options_of(file, '"Order s"'), Schema(()), schema))) == 2
    assert len(read(source(options_of(file, "main.Order s"), schema))) == 2


def test_empty_tables(file: FileDatabase) -> None:
    file.execute("CREATE TABLE t (id BIGINT)")
    assert read(source(options_of(file, "t"), Schema.of(id=BIGINT)), parallelism=2) == []


@pytest.mark.parametrize(
    ("table", "column", "declared", "message"),
    [
        ("ordes", "id", BIGINT, r"there is no table 'ordes' in the file.*did you mean 'orders'"),
        ("orders", "ids", BIGINT, r"has no column 'ids'.*did you mean 'id'"),
        ("orders", "v", BIGINT, r"column 'v' of .* is .*, which cannot be read as BIGINT"),
        ("orders", "v", array(INT), r"which cannot be read as ARRAY<INT>"),
    ],
)
def test_tables_that_do_not_fit(file: FileDatabase, table: str, column: str, declared: DataType, message: str) -> None:
    file.execute("CREATE TABLE orders (id BIGINT, v TEXT)")
    with pytest.raises(ConnectorError, match=f"(?s){message}"):
        read(source(options_of(file, table), Schema.from_pairs([(column, declared)])))


def test_files_that_are_none(file: FileDatabase) -> None:
    options = options_of(file, "t")
    file.path.write_bytes(b"no database at all, but something else\n" * 1000)
    with pytest.raises(ConnectorError, match=r"is no (DuckDB|SQLite) file") as raised:
        read(source(options, Schema.of(id=BIGINT)))
    assert not raised.value.retryable
    file.path.unlink()
    with pytest.raises(ConnectorError, match=r"(?s)there is no file '.*flowrun makes no tables"):
        read(source(options, Schema.of(id=BIGINT)))
    assert not file.path.exists()


def test_a_damaged_file(sqlite_file: FileDatabase) -> None:
    fill(sqlite_file, rows=3000)
    sqlite_file.execute("PRAGMA journal_mode = DELETE")
    whole = bytearray(sqlite_file.path.read_bytes())
    whole[4096:] = b"\xff" * (len(whole) - 4096)  # the first page says which tables there are
    sqlite_file.path.write_bytes(whole)
    with pytest.raises(ConnectorError, match=r"(?s)is damaged: .*malformed.*\.recover") as raised:
        read(source(options_of(sqlite_file, "t"), Schema.of(id=BIGINT)))
    assert not raised.value.retryable


@pytest.mark.parametrize(
    ("url", "more", "message"),
    [
        ("jdbc:duckdb:", {}, "in memory"),
        ("jdbc:sqlite::memory:", {}, "in memory"),
        ("jdbc:duckdb:x;acces_mode=READ_ONLY", {}, "did you mean 'access_mode'"),
        ("jdbc:duckdb:x;access_mode=RO", {}, "READ_ONLY, got 'RO'"),
        ("jdbc:duckdb:md:shop", {}, "a file on this machine"),
        ("jdbc:sqlite:x?journal_mode=fast", {}, "one of WAL"),
        ("jdbc:sqlite:x", {"username": "u"}, "has no users"),
        (
            "jdbc:mysql://h/d",
            {},
            "expects jdbc:postgresql://host:port/database, jdbc:duckdb:path or jdbc:sqlite:path, got jdbc:mysql:",
        ),
    ],
)
def test_addresses_that_say_nothing_known(url: str, more: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message) as raised:
        source({"url": url, "table-name": "t", **more}, Schema.of(id=BIGINT))
    assert raised.value.hint is None or raised.value.hint
