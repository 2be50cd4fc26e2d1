"""The connector against a real server: what is there, then every change, exactly once."""

from __future__ import annotations

import dataclasses
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import psycopg
import pytest

from flowrun.api.connector import TableDefinition
from flowrun.api.operator import InputStatus
from flowrun.api.source import Split
from flowrun.connectors.postgres_cdc import fetcher
from flowrun.connectors.postgres_cdc.connector import CONNECTOR
from flowrun.connectors.postgres_cdc.source import PostgresCdcSource
from flowrun.connectors.postgres_cdc.table_watch import TableWatch
from flowrun.core import types as t
from flowrun.core.elements import RowKind
from flowrun.core.options import parse_options
from flowrun.core.schema import Schema
from flowrun.errors import ConnectorError, DataError, OptionError
from flowrun.testing.connector_conformance import SourceDrive
from tests.servers.postgres import PostgresDatabase, PostgresServer

pytestmark = pytest.mark.exhaustive

SCHEMA = Schema.of(id=t.BIGINT, name=t.STRING, n=t.INT)
SOON_S = 30
CREATE = "CREATE TABLE t (id bigint PRIMARY KEY, name text, n integer)"
DROPPED = "publication .mine. .*(was dropped|does not exist)"
"""Which of the two is said depends on who notices first: the watch of the tables, or the server with the next change."""


def source(database: PostgresDatabase, schema: Schema = SCHEMA, **more: str) -> PostgresCdcSource:
    given = {
        "hostname": database.host, "port": str(database.port), "database-name": database.name, "username": database.user,
        "password": database.password, "table-name": "t", "slot.name": f"slot_{database.name}".lower(),
        **{name.replace("__", ".").replace("_", "-"): value for name, value in more.items()},
    }  # fmt: skip
    options, problems = parse_options(CONNECTOR.source_options, given, "t")
    assert not problems
    assert CONNECTOR.create_source is not None
    made = CONNECTOR.create_source(TableDefinition("t", schema, options, primary_key=("id",)))
    assert isinstance(made, PostgresCdcSource)
    return made


class Reading:
    """Reads a table, as a job of one subtask would; what it has read is a table by `id`."""

    def __init__(
        self,
        made: PostgresCdcSource,
        restored: Sequence[Split] = (),
        rows: dict[Any, dict[str, Any]] | None = None,
        batch_rows: int = 1000,
        parallelism: int = 1,
    ) -> None:
        self.drive = SourceDrive(
            made,
            restored=restored,
            batch_rows=batch_rows,
            enumerator_state=[] if restored else None,
            parallelism=parallelism,
        )
        self.rows = {} if rows is None else dict(rows)
        self.changes: list[tuple[str, dict[str, Any]]] = []
        self._seen = 0
        self.drive.answer_requests()

    def step(self) -> None:
        reader, *idle = self.drive.readers
        if reader.poll(self.drive) is InputStatus.NOTHING_AVAILABLE:
            time.sleep(0.005)
        assert {other.poll(self.drive) for other in idle} <= {InputStatus.END_OF_INPUT}
        for batch in self.drive.emitted[self._seen :]:
            kinds = [0] * batch.num_rows if batch.row_kinds is None else batch.row_kinds.to_pylist()
            for kind, row in zip(kinds, batch.columns.to_pylist(), strict=True):
                self.changes.append((RowKind(kind).symbol, row))
                if kind == RowKind.DELETE:
                    self.rows.pop(row["id"], None)
                else:
                    self.rows[row["id"]] = row
        self._seen = len(self.drive.emitted)

    def until(self, holds: Callable[[], object]) -> None:
        deadline = time.monotonic() + SOON_S
        while not holds():
            assert time.monotonic() < deadline, f"waited in vain; read: {list(self.rows.items())[:5]}"
            self.step()

    def checkpoint(self, number: int = 1) -> list[Split]:
        reader = self.drive.readers[0]
        found = list(reader.snapshot())
        reader.notify_snapshot(number)  # type: ignore[attr-defined]
        reader.notify_checkpoint_complete(number)
        return found

    def pages_left(self) -> int:
        """How much of the table itself is left; 0 before that is known, too."""
        left = cast("list[list[int]] | None", self.checkpoint()[0].position["left"])
        return sum(stop - first for _, _, first, stop in left or ())

    def is_in_log(self) -> bool:
        """Whether the rows that were there are read, and changes are."""
        position = self.checkpoint()[0].position
        return position["lsn"] is not None and position["left"] is None

    def has_read(self, id: int) -> bool:
        """Whether a row with this key is read."""
        return id in self.rows

    def close(self) -> None:
        for reader in self.drive.readers:
            reader.close()


@pytest.fixture
def reading() -> Iterator[Callable[..., Reading]]:
    made: list[Reading] = []

    def read(*given: Any, **more: Any) -> Reading:
        made.append(Reading(*given, **more))
        return made[-1]

    yield read
    for each in made:
        each.close()


def skip_before_15(database: PostgresDatabase, *, when: bool) -> None:
    if when and database.execute("SHOW server_version_num")[0][0] < "150000":
        pytest.skip("publications name whole tables, one by one or all, before PostgreSQL 15")


def table_of(database: PostgresDatabase) -> dict[Any, dict[str, Any]]:
    return {i: {"id": i, "name": name, "n": n} for i, name, n in database.execute("SELECT id, name, n FROM t")}


def test_rows_and_then_changes_in_their_order(postgres: PostgresDatabase, reading: Callable[..., Reading]) -> None:
    postgres.execute(f"{CREATE}; INSERT INTO t VALUES (1, 'a\n\"b\",', 1), (2, '', NULL), (3, NULL, 3)")
    job = reading(source(postgres))
    job.until(lambda: len(job.rows) == 3)
    assert job.rows == table_of(postgres)
    postgres.execute(
        "BEGIN; UPDATE t SET n = 10 WHERE id = 1; DELETE FROM t WHERE id = 2; UPDATE t SET id = 30 WHERE id = 3; "
        "INSERT INTO t VALUES (4, 'd', 4); COMMIT; BEGIN; INSERT INTO t VALUES (5, 'rolled back', 5); ROLLBACK"
    )
    job.until(lambda: 4 in job.rows)
    assert job.rows == table_of(postgres)
    assert [(kind, row["id"]) for kind, row in job.changes[3:]] == [
        ("+U", 1),
        ("-D", 2),
        ("-D", 3),
        ("+U", 30),
        ("+I", 4),
    ]


def test_a_checkpoint_is_gone_on_from_between_the_rows_of_a_large_transaction(
    postgres: PostgresDatabase, reading: Callable[..., Reading]
) -> None:
    postgres.execute(CREATE)
    made = source(postgres)
    job = reading(made, batch_rows=100)
    job.until(job.is_in_log)
    postgres.execute("INSERT INTO t SELECT i, 'x' || i, i FROM generate_series(1, 5000) i")
    job.until(lambda: len(job.changes) >= 1000)
    splits = job.checkpoint(2)
    seen = len(job.changes)
    assert 0 < splits[0].position["skip"] == seen  # type: ignore[operator]
    job.close()
    postgres.execute("DELETE FROM t WHERE id = 7")
    again = reading(made, splits, job.rows, batch_rows=100)
    again.until(lambda: 5000 in again.rows and 7 not in again.rows)
    assert len(again.changes) == 5000 - seen + 1
    assert again.rows == table_of(postgres)


def half_read(
    postgres: PostgresDatabase, made: PostgresCdcSource, reading: Callable[..., Reading]
) -> tuple[Reading, list[Split]]:
    """A job that was ended when it had read some chunks of a table of 20,000 rows, and its checkpoint."""
    postgres.execute(f"{CREATE}; INSERT INTO t SELECT i, repeat('x', 300), i FROM generate_series(1, 30000) i")
    postgres.execute("DELETE FROM t WHERE id <= 10000")
    job = reading(made)
    job.until(job.pages_left)
    whole = job.pages_left()
    job.until(lambda: 0 < job.pages_left() < whole)
    splits = job.checkpoint()
    job.close()
    return job, splits


def test_a_table_whose_reading_was_interrupted_is_read_on(
    postgres: PostgresDatabase, reading: Callable[..., Reading]
) -> None:
    made = source(postgres, scan__incremental__snapshot__chunk__size="1000")
    job, splits = half_read(postgres, made, reading)
    postgres.execute(
        "DELETE FROM t WHERE id % 3 = 0; UPDATE t SET n = -1 WHERE id % 3 = 1; INSERT INTO t VALUES (0, 'new', 0)"
    )
    again = reading(made, splits, job.rows)
    again.until(again.is_in_log)
    assert len(again.changes) < 20_000  # chunks that were read are not read again
    again.until(lambda: again.rows == table_of(postgres))


def test_rows_that_the_server_has_moved_meanwhile_are_read_again(
    postgres: PostgresDatabase, reading: Callable[..., Reading]
) -> None:
    made = source(postgres, scan__incremental__snapshot__chunk__size="1000")
    job, splits = half_read(postgres, made, reading)
    postgres.execute("VACUUM FULL t")
    again = reading(made, splits, job.rows)
    again.until(lambda: again.rows == table_of(postgres))


def test_the_server_moves_no_rows_while_they_are_read(
    postgres: PostgresDatabase, reading: Callable[..., Reading]
) -> None:
    postgres.execute(f"{CREATE}; INSERT INTO t SELECT i, repeat('x', 300), i FROM generate_series(1, 30000) i")
    job = reading(source(postgres, scan__incremental__snapshot__chunk__size="1000"), parallelism=3)
    job.until(job.pages_left)
    with pytest.raises(psycopg.errors.LockNotAvailable):
        postgres.execute("SET lock_timeout = '100 ms'; CLUSTER t USING t_pkey")
    job.until(job.is_in_log)
    postgres.execute("CLUSTER t USING t_pkey")
    assert job.rows == table_of(postgres)


def test_several_connections_read_one_moment_of_a_table(
    postgres: PostgresDatabase, reading: Callable[..., Reading]
) -> None:
    """Transactions that move a number from one row to another go on: their sum is the same at each moment."""
    postgres.execute(f"{CREATE}; INSERT INTO t SELECT i, repeat('x', 100), 1000 FROM generate_series(1, 20000) i")
    stop = threading.Event()

    def move() -> None:
        chance = random.Random(1)
        with postgres.connect() as connection:
            while not stop.is_set():
                connection.execute(
                    "UPDATE t SET n = n + CASE id WHEN %(a)s THEN 1 ELSE -1 END WHERE id IN (%(a)s, %(b)s)",
                    {"a": chance.randrange(1, 10000), "b": chance.randrange(10000, 20000)},
                )

    writer = threading.Thread(target=move)
    writer.start()
    try:
        job = reading(source(postgres, scan__incremental__snapshot__chunk__size="500"), parallelism=4)
        job.until(job.is_in_log)
        rows = {row["id"]: row["n"] for kind, row in job.changes if kind == "+I"}
        assert len(rows) == 20000
        assert sum(rows.values()) == 20000 * 1000
    finally:
        stop.set()
        writer.join()
    job.until(lambda: job.rows == table_of(postgres))


def test_a_partitioned_table(postgres: PostgresDatabase, reading: Callable[..., Reading]) -> None:
    postgres.execute(
        "CREATE TABLE t (id bigint PRIMARY KEY, name text, n integer) PARTITION BY RANGE (id);"
        "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (1000); CREATE TABLE high PARTITION OF t DEFAULT;"
        "INSERT INTO t SELECT i, 'x', i FROM generate_series(1, 2000) i"
    )
    job = reading(source(postgres, scan__incremental__snapshot__chunk__size="300"), parallelism=2)
    job.until(job.is_in_log)
    assert job.rows == table_of(postgres)
    postgres.execute("DELETE FROM t WHERE n = 7")
    postgres.execute("UPDATE t SET id = 5000 WHERE id = 5; INSERT INTO low VALUES (0, 'new', 0)")
    job.until(lambda: 0 in job.rows)
    assert job.rows == table_of(postgres)


def test_a_publication_that_names_partitions_is_told(
    postgres: PostgresDatabase, reading: Callable[..., Reading]
) -> None:
    postgres.execute(
        "CREATE TABLE t (id bigint PRIMARY KEY, name text, n integer) PARTITION BY RANGE (id);"
        "CREATE TABLE low PARTITION OF t DEFAULT; CREATE PUBLICATION mine FOR TABLE t"
    )
    with pytest.raises(ConnectorError, match=r"names changes of .* by its partitions") as caught:
        reading(source(postgres, publication__name="mine")).until(lambda: False)
    assert "publish_via_partition_root" in str(caught.value.hint)


def test_changes_of_other_tables_of_the_publication_are_left_out(
    postgres: PostgresDatabase, reading: Callable[..., Reading]
) -> None:
    postgres.execute(f"{CREATE}; CREATE TABLE other (id bigint PRIMARY KEY, name text, n integer, more text)")
    postgres.execute("CREATE PUBLICATION mine FOR TABLE t, other")
    job = reading(source(postgres, publication__name="mine"))
    job.until(job.is_in_log)
    postgres.execute("BEGIN; INSERT INTO other VALUES (1, 'other', 1); INSERT INTO t VALUES (2, 'a', 2); COMMIT")
    postgres.execute("INSERT INTO other VALUES (3, 'other', 3); INSERT INTO t VALUES (4, 'b', 4)")
    job.until(lambda: 4 in job.rows)
    assert job.rows == table_of(postgres)


def test_a_table_that_was_made_anew_is_told(postgres: PostgresDatabase, reading: Callable[..., Reading]) -> None:
    postgres.execute(f"{CREATE}; CREATE PUBLICATION mine FOR ALL TABLES")
    job = reading(source(postgres, publication__name="mine"))
    job.until(job.is_in_log)
    postgres.execute(f"DROP TABLE t; {CREATE}; INSERT INTO t VALUES (1, 'a', 1)")
    with pytest.raises(ConnectorError, match="was dropped and made anew"):
        job.until(lambda: False)


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("DROP TABLE t", 'table "public"."t" .* was dropped: there are no further changes'),
        (f"DROP TABLE t; {CREATE}", 'table "public"."t" .* was dropped: there are no further changes'),
        ("ALTER TABLE t RENAME TO u", 'table "public"."t" .* was renamed to "public"."u"'),
        ('CREATE SCHEMA "S"; ALTER TABLE t SET SCHEMA "S"', 'table "public"."t" .* was renamed to "S"."t"'),
        ("ALTER PUBLICATION mine DROP TABLE t", "publication 'mine' .* does not have the table"),
        ("ALTER PUBLICATION mine SET TABLE t WHERE (n > 1)", "publication 'mine' .* has only rows WHERE"),
        ("ALTER PUBLICATION mine SET (publish = 'insert')", "publication 'mine' .* does not publish update and delete"),
        ("DROP PUBLICATION mine", DROPPED),
    ],
    ids=[
        "dropped",
        "made anew",
        "renamed",
        "moved",
        "not published",
        "filtered",
        "without updates",
        "publication dropped",
    ],
)
def test_a_table_whose_changes_are_not_told_any_more_is_an_error_behind_its_last_change(
    postgres: PostgresDatabase,
    reading: Callable[..., Reading],
    monkeypatch: pytest.MonkeyPatch,
    statement: str,
    told: str,
) -> None:
    postgres.execute(f"{CREATE}; CREATE PUBLICATION mine FOR TABLE t; INSERT INTO t VALUES (1, 'a', 1)")
    monkeypatch.setattr(fetcher, "_WATCH_S", 0.05)
    job = reading(source(postgres, publication__name="mine"))
    job.until(lambda: 1 in job.rows and job.is_in_log())
    with postgres.connect(autocommit=False) as connection:
        connection.execute("INSERT INTO t SELECT i, 'x', 2 FROM generate_series(2, 5000) i")
        connection.commit()
        connection.execute(statement)
        connection.commit()
    with pytest.raises(ConnectorError, match=told) as raised:
        job.until(lambda: False)
    assert raised.value.retryable is False
    assert len(job.rows) == 5000 or "PUBLICATION" in statement, "all changes before it are read"


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("ALTER PUBLICATION mine DROP TABLE t", "does not have the table"),
        ("ALTER PUBLICATION mine SET (publish = 'insert')", "does not publish update and delete"),
        ("DROP PUBLICATION mine", "was dropped"),
    ],
)
def test_nothing_tempts_to_go_on_from_a_checkpoint_without_the_changes_since(
    postgres: PostgresDatabase, reading: Callable[..., Reading], statement: str, told: str
) -> None:
    postgres.execute(f"{CREATE}; CREATE PUBLICATION mine FOR TABLE t; INSERT INTO t VALUES (1, 'a', 1)")
    made = source(postgres, publication__name="mine")
    job = reading(made)
    job.until(lambda: 1 in job.rows and job.is_in_log())
    kept = job.checkpoint()
    job.close()
    postgres.execute(f"{statement}; INSERT INTO t VALUES (2, 'b', 2)")
    with pytest.raises(ConnectorError, match=told) as raised:
        reading(made, kept).until(lambda: False)
    assert raised.value.retryable is False
    hint = raised.value.hint or ""
    assert "lost" in hint
    assert f"SELECT pg_drop_replication_slot('{made.capture.table.slot}')" in hint
    assert hint.endswith("start the pipeline afresh, without the checkpoint")
    assert postgres.execute("SELECT count(*) FROM pg_publication")[0][0] == int("DROP PUB" not in statement)


BY_ROOT = "WITH (publish_via_partition_root = true)"
OUT_AND_BACK = ("ALTER PUBLICATION mine DROP TABLE t", "ALTER PUBLICATION mine ADD TABLE t")
SCHEMA_OUT_AND_BACK = (
    "ALTER PUBLICATION mine DROP TABLES IN SCHEMA public",
    "ALTER PUBLICATION mine ADD TABLES IN SCHEMA public",
)
WAS_OUT = "was taken out of the publication 'mine' .* and put back"


@pytest.mark.parametrize("meanwhile", ["a job runs", "no job runs"])
@pytest.mark.parametrize(
    ("table", "publication", "out_and_back", "told"),
    [
        ("t", "TABLE t", OUT_AND_BACK, WAS_OUT),
        ("t", "TABLE t", ("ALTER PUBLICATION mine SET TABLE u", "ALTER PUBLICATION mine SET TABLE t, u"), WAS_OUT),
        ("t", "TABLE t", ("DROP PUBLICATION mine", "CREATE PUBLICATION mine FOR TABLE t"), DROPPED),
        ("t", "ALL TABLES", ("DROP PUBLICATION mine", "CREATE PUBLICATION mine FOR ALL TABLES"), DROPPED),
        ("t", "TABLES IN SCHEMA public", SCHEMA_OUT_AND_BACK, WAS_OUT),
        ("parted", f"TABLE parted {BY_ROOT}", [each.replace(" t", " parted") for each in OUT_AND_BACK], WAS_OUT),
        ("parted", f"TABLES IN SCHEMA public {BY_ROOT}", SCHEMA_OUT_AND_BACK, WAS_OUT),
        ("part", "TABLE parted", [each.replace(" t", " parted") for each in OUT_AND_BACK], WAS_OUT),
    ],
    ids=["by name", "in a list", "publication", "all tables", "schema", "partitioned", "partitioned in a schema", "partition"],
)  # fmt: skip
def test_a_table_that_was_out_of_its_publication_for_a_moment_has_lost_changes(
    postgres: PostgresDatabase,
    reading: Callable[..., Reading],
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    publication: str,
    out_and_back: Sequence[str],
    told: str,
    meanwhile: str,
) -> None:
    skip_before_15(postgres, when="SCHEMA" in publication)
    postgres.execute(
        f"{CREATE}; CREATE TABLE u (i int); CREATE TABLE parted (LIKE t INCLUDING INDEXES) PARTITION BY RANGE (id);"
        f"CREATE TABLE part PARTITION OF parted DEFAULT; CREATE PUBLICATION mine FOR {publication}"
    )
    monkeypatch.setattr(fetcher, "_WATCH_S", 0.05)
    made = source(postgres, publication__name="mine", table_name=table)
    job = reading(made)
    job.until(job.is_in_log)
    kept = job.checkpoint()
    if meanwhile == "no job runs":
        job.close()
    postgres.execute(f"; INSERT INTO {table} VALUES (1, 'lost', 1);".join(out_and_back))
    if meanwhile == "no job runs":
        job = reading(made, kept)
    with pytest.raises(ConnectorError, match=told) as raised:
        job.until(lambda: False)
    assert raised.value.retryable is False
    hint = raised.value.hint or ""
    assert "changes since then are lost" in hint
    assert f"SELECT pg_drop_replication_slot('{made.capture.table.slot}')" in hint
    assert hint.endswith("start the pipeline afresh, without the checkpoint")


def test_a_table_that_left_its_publication_for_a_moment_while_its_rows_were_half_read(
    postgres: PostgresDatabase, reading: Callable[..., Reading]
) -> None:
    made = source(postgres, scan__incremental__snapshot__chunk__size="1000")
    _, kept = half_read(postgres, made, reading)
    name = made.capture.table.publication
    postgres.execute(f"ALTER PUBLICATION {name} DROP TABLE t; ALTER PUBLICATION {name} ADD TABLE t")
    with pytest.raises(ConnectorError, match=rf"was taken out of the publication '{name}' .* and put back"):
        reading(made, kept).until(lambda: False)


@pytest.mark.parametrize(
    "statement", [f"DROP TABLE t; {CREATE}", f"ALTER TABLE t RENAME TO old; {CREATE}"], ids=["made anew", "exchanged"]
)
def test_another_table_of_the_name_is_told_when_a_job_goes_on(
    postgres: PostgresDatabase, reading: Callable[..., Reading], statement: str
) -> None:
    postgres.execute(f"{CREATE}; CREATE PUBLICATION mine FOR ALL TABLES; INSERT INTO t VALUES (1, 'a', 1)")
    made = source(postgres, publication__name="mine")
    job = reading(made)
    job.until(lambda: 1 in job.rows and job.is_in_log())
    kept = job.checkpoint()
    job.close()
    postgres.execute(statement)
    with pytest.raises(ConnectorError, match=r'table "public"."t" .* is another one than') as raised:
        reading(made, kept).until(lambda: False)
    assert raised.value.retryable is False
    assert (raised.value.hint or "").endswith("start the pipeline afresh, without the checkpoint")


@pytest.mark.parametrize("runs", [True, False], ids=["a job runs", "no job runs"])
@pytest.mark.parametrize(
    ("publication", "statements"),
    [
        ("TABLE t", ["ALTER PUBLICATION mine ADD TABLE u", "ALTER PUBLICATION mine SET TABLE t"]),
        ("TABLE t, u", ["ALTER PUBLICATION mine SET TABLE t", "ALTER PUBLICATION mine SET TABLE t, u"]),
        ("TABLE t", ["ALTER TABLE t RENAME TO v; ALTER TABLE v RENAME TO t", "VACUUM FULL t"]),
        ("TABLE t", ["ALTER PUBLICATION mine RENAME TO yours; ALTER PUBLICATION yours RENAME TO mine"]),
        ("TABLE t", ["ALTER PUBLICATION mine ADD TABLES IN SCHEMA public", "ALTER PUBLICATION mine DROP TABLE t"]),
    ],
    ids=["other tables", "list of tables", "renamed and back", "publication renamed and back", "named otherwise"],
)
def test_a_table_that_was_in_its_publication_all_the_time_is_gone_on_with(
    postgres: PostgresDatabase,
    reading: Callable[..., Reading],
    monkeypatch: pytest.MonkeyPatch,
    publication: str,
    statements: Sequence[str],
    runs: bool,
) -> None:
    skip_before_15(postgres, when="SCHEMA" in " ".join(statements))
    postgres.execute(f"{CREATE}; CREATE TABLE u (i int PRIMARY KEY); CREATE PUBLICATION mine FOR {publication}")
    looks: list[int] = []
    look = TableWatch.check

    def counted(watch: TableWatch, read_lsn: int, now_s: float) -> None:
        look(watch, read_lsn, now_s)
        looks.append(read_lsn)

    monkeypatch.setattr(TableWatch, "check", counted)
    monkeypatch.setattr(fetcher, "_WATCH_S", 0.0)
    made = source(postgres, publication__name="mine")
    job = reading(made)
    job.until(job.is_in_log)
    for number, statement in enumerate(statements):
        kept = job.checkpoint()
        if not runs:
            job.close()
        postgres.execute(statement)
        if not runs:
            job = reading(made, kept, job.rows)
        looked = len(looks)
        job.until(lambda looked=looked: len(looks) > looked + 1)
        postgres.execute("INSERT INTO t VALUES (%s, 'a', 1)", [number])
        job.until(partial(job.has_read, number))
    assert job.rows == table_of(postgres)


def test_a_checkpoint_of_an_earlier_version_does_not_say_how_the_table_was_published(
    postgres: PostgresDatabase, reading: Callable[..., Reading]
) -> None:
    postgres.execute(f"{CREATE}; CREATE PUBLICATION mine FOR TABLE t; INSERT INTO t VALUES (1, 'a', 1)")
    made = source(postgres, publication__name="mine")
    job = reading(made)
    job.until(lambda: 1 in job.rows and job.is_in_log())
    (split,) = job.checkpoint()
    position = cast("dict[str, Any]", split.position)
    early = Split(split.split_id, {name: position[name] for name in ("lsn", "skip", "left")})
    job.close()
    postgres.execute("ALTER PUBLICATION mine DROP TABLE t; ALTER PUBLICATION mine ADD TABLE t")
    made.position_shape(early.position, "")
    again = reading(made, [early], job.rows)
    again.until(again.is_in_log)
    postgres.execute("INSERT INTO t VALUES (2, 'b', 2)")
    again.until(lambda: 2 in again.rows)
    kept = again.checkpoint()
    again.close()
    postgres.execute("ALTER PUBLICATION mine DROP TABLE t; ALTER PUBLICATION mine ADD TABLE t")
    with pytest.raises(ConnectorError, match="was taken out of the publication 'mine'"):
        reading(made, kept).until(lambda: False)


def test_a_server_that_cannot_be_asked_about_its_tables_is_no_error(
    postgres_server: PostgresServer,
    postgres: PostgresDatabase,
    reading: Callable[..., Reading],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = f"{postgres.name}_reader"
    postgres.execute(
        f"{CREATE}; CREATE PUBLICATION mine FOR TABLE t; CREATE ROLE {reader} LOGIN REPLICATION PASSWORD 'w'"
    )
    try:
        postgres.execute(f"GRANT SELECT ON t TO {reader}")
        monkeypatch.setattr(fetcher, "_WATCH_S", 0.05)
        job = reading(source(postgres, publication__name="mine", username=reader, password="w"))
        job.until(job.is_in_log)
        job.until(lambda: is_followed(postgres))  # from here on, only the watch of the tables connects anew
        postgres.execute(f"ALTER ROLE {reader} PASSWORD 'another'")
        job.until(lambda: f'password authentication failed for user "{reader}"' in postgres_server.log)
        postgres.execute("INSERT INTO t VALUES (1, 'a', 1)")
        job.until(lambda: 1 in job.rows)
        job.close()
    finally:
        postgres.execute(f"DROP OWNED BY {reader}; DROP ROLE {reader}")


def is_followed(database: PostgresDatabase) -> bool:
    """Whether somebody reads from the slot of a database."""
    slots = database.execute("SELECT active FROM pg_replication_slots WHERE database = current_database()")
    return [active for (active,) in slots] == [True]


def test_a_key_that_the_log_does_not_tell(postgres: PostgresDatabase, reading: Callable[..., Reading]) -> None:
    postgres.execute("CREATE TABLE t (other bigint PRIMARY KEY, id bigint NOT NULL, name text, n integer)")
    with pytest.raises(ConnectorError, match=r"does not tell the .id. of removed rows .*: other"):
        reading(source(postgres)).until(lambda: False)
    assert server_keeps(postgres) == 0
    postgres.execute("CREATE UNIQUE INDEX by_id ON t (id); ALTER TABLE t REPLICA IDENTITY USING INDEX by_id")
    job = reading(source(postgres))
    job.until(job.is_in_log)
    postgres.execute("ALTER TABLE t REPLICA IDENTITY DEFAULT; INSERT INTO t VALUES (1, 1, 'a', 1)")
    with pytest.raises(ConnectorError, match=r"does not tell the .id. of removed rows .*: other"):
        job.until(lambda: False)


def server_keeps(database: PostgresDatabase) -> int:
    """How many slots and publications a database has."""
    slots = "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
    return int(database.execute(f"SELECT ({slots}) + (SELECT count(*) FROM pg_publication)")[0][0])


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("CREATE TABLE t (id bigint, name text, n integer)", "has no primary key: the log would not tell which"),
        (f"{CREATE}; ALTER TABLE t REPLICA IDENTITY NOTHING", "has REPLICA IDENTITY NOTHING"),
        (f"{CREATE} PARTITION BY RANGE (id); CREATE TABLE p PARTITION OF t DEFAULT; ALTER TABLE p REPLICA IDENTITY NOTHING",
         "table p .* has REPLICA IDENTITY NOTHING"),
        ("CREATE UNLOGGED TABLE t (id bigint PRIMARY KEY, name text, n integer)", "is UNLOGGED: its changes are not in the log"),
        ("CREATE TABLE t (id bigint PRIMARY KEY, names text, n integer)", r"(?s)has no column 'name'.*did you mean 'names'"),
        ("CREATE TABLE t (id bigint PRIMARY KEY, name text, n integer GENERATED ALWAYS AS (7) STORED)", "column 'n' .* is generated"),
    ],
)  # fmt: skip
def test_a_table_whose_log_would_not_tell_all_is_refused_before_the_server_keeps_anything(
    postgres: PostgresDatabase, reading: Callable[..., Reading], ddl: str, message: str
) -> None:
    postgres.execute(ddl)
    with pytest.raises(ConnectorError, match=message):
        reading(source(postgres)).until(lambda: False)
    assert server_keeps(postgres) == 0


@pytest.mark.parametrize(
    ("publication", "more", "message"),
    [
        ("TABLE t WITH (publish = 'insert')", {}, "does not publish update and delete and truncate"),
        (
            "TABLE t WITH (publish = 'insert, update, delete')",
            {},
            "does not publish truncate: such changes would be lost",
        ),
        ("TABLE t WITH (publish = 'insert, update, delete')", {"truncate": "ignore"}, None),
        ("TABLE t (id, n)", {}, "does not have column 'name' of table"),
        ("TABLE t (id, name, n)", {}, None),
        ("TABLE t WHERE (n > 5)", {}, "has only rows WHERE .*n > 5"),
        ("TABLE u", {}, "does not have the table"),
        ("ALL TABLES", {}, None),
    ],
)
def test_a_publication_of_a_part_of_the_changes_is_told(
    postgres: PostgresDatabase,
    reading: Callable[..., Reading],
    publication: str,
    more: dict[str, str],
    message: str | None,
) -> None:
    skip_before_15(postgres, when="(" in publication.partition("WITH")[0])
    postgres.execute(f"{CREATE}; CREATE TABLE u (i int)")
    postgres.execute(f"CREATE PUBLICATION \"My 'own' one\" FOR {publication}")
    job = reading(source(postgres, publication__name="My 'own' one", **more))
    if message is not None:
        with pytest.raises(ConnectorError, match=message):
            job.until(lambda: False)
        return
    job.until(job.is_in_log)
    postgres.execute("INSERT INTO t VALUES (1, 'a', 1); UPDATE t SET n = 2; INSERT INTO t VALUES (2, 'b', 2)")
    job.until(lambda: 2 in job.rows)
    assert job.rows == table_of(postgres)


def test_two_pipelines_with_one_slot(
    postgres: PostgresDatabase, reading: Callable[..., Reading], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "_SLOT_RELEASE_S", 0.5)
    postgres.execute(f"{CREATE}; INSERT INTO t SELECT i, 'a', 1 FROM generate_series(1, 100000) i")
    made = source(postgres, scan__incremental__snapshot__chunk__size="1000")
    job = reading(made, batch_rows=100)
    job.until(lambda: len(job.rows) > 500)
    postgres.execute("UPDATE t SET n = 2 WHERE id = 1")
    with pytest.raises(ConnectorError, match=r"the replication slot .* is read by another process"):
        reading(made).until(lambda: False)
    postgres.execute("UPDATE t SET n = 3 WHERE id = 2")
    job.until(lambda: job.rows.get(2, {}).get("n") == 3)
    assert job.rows == table_of(postgres)
    with pytest.raises(ConnectorError, match=r"the replication slot .* is read by another process"):
        reading(made).until(lambda: False)


def test_a_slot_that_was_made_anew_while_the_table_was_read_is_told(
    postgres: PostgresDatabase, reading: Callable[..., Reading]
) -> None:
    postgres.execute(f"{CREATE}; INSERT INTO t SELECT i, 'a', 1 FROM generate_series(1, 100000) i")
    made = source(postgres, scan__incremental__snapshot__chunk__size="1000")
    job = reading(made, batch_rows=100)
    job.until(lambda: len(job.rows) > 500)
    slot = made.capture.table.slot
    postgres.execute(f"SELECT pg_drop_replication_slot('{slot}')")
    postgres.execute("UPDATE t SET n = 2 WHERE id = 1")
    postgres.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    with pytest.raises(ConnectorError, match=r"begins at .*, but changes are needed from .* are lost"):
        job.until(lambda: False)


@pytest.mark.parametrize("reads", ["the table", "the log"])
def test_a_server_that_hangs_is_given_up(
    postgres_server: PostgresServer, postgres: PostgresDatabase, reading: Callable[..., Reading], reads: str
) -> None:
    postgres.execute(f"{CREATE}; INSERT INTO t SELECT i, repeat('a', 500), 1 FROM generate_series(1, 100000) i")
    made = source(postgres, scan__incremental__snapshot__chunk__size="100000")
    patience = dataclasses.replace(made.capture.table.access, silence_s=1.5)
    table = dataclasses.replace(made.capture.table, access=patience)
    job = reading(PostgresCdcSource(dataclasses.replace(made.capture, table=table)), batch_rows=100)
    if reads == "the table":
        job.until(lambda: len(job.rows) > 500)
    else:
        postgres.execute("TRUNCATE t; INSERT INTO t VALUES (1, 'a', 1)")
        job.until(job.is_in_log)
        quiet_until = time.monotonic() + 3
        job.until(lambda: time.monotonic() > quiet_until)  # a quiet server is one that answers
    postgres_server.hang()
    with pytest.raises(ConnectorError, match=r"did not answer for 1\.5 s") as caught:
        job.until(lambda: False)
    assert caught.value.retryable


def test_a_row_whose_only_column_is_null(postgres: PostgresDatabase, reading: Callable[..., Reading]) -> None:
    postgres.execute("CREATE TABLE t (id text, n integer); ALTER TABLE t REPLICA IDENTITY FULL")
    postgres.execute("INSERT INTO t VALUES ('a', 1), (NULL, 2), ('', 3)")
    job = reading(source(postgres, Schema.of(id=t.STRING)))
    job.until(job.is_in_log)
    assert [row["id"] for _, row in job.changes] == ["a", None, ""]


def test_a_database_in_another_encoding(postgres_server: PostgresServer, reading: Callable[..., Reading]) -> None:
    name = f"latin_{os.getpid()}"
    postgres_server.administration.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    database = dataclasses.replace(postgres_server.administration, name=name)
    try:
        database.execute(f"{CREATE}; INSERT INTO t VALUES (1, 'Käse', 1)")
        job = reading(source(database))
        job.until(job.is_in_log)
        database.execute("INSERT INTO t VALUES (2, 'Öl', 2)")
        job.until(lambda: 2 in job.rows)
        assert [row["name"] for row in job.rows.values()] == ["Käse", "Öl"]
        job.close()
    finally:
        postgres_server.drop_database(database)


def test_the_server_forgets_only_what_checkpoints_hold(
    postgres: PostgresDatabase, reading: Callable[..., Reading]
) -> None:
    postgres.execute(CREATE)
    made = source(postgres)
    job = reading(made)
    job.until(job.is_in_log)
    postgres.execute("INSERT INTO t VALUES (1, 'a', 1)")
    job.until(lambda: 1 in job.rows)
    slot = made.capture.table.slot
    lsn = f"SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = '{slot}'"
    before = int(postgres.execute(lsn)[0][0])
    position = job.drive.readers[0].snapshot()[0].position  # within the transaction, if its end has not come yet
    assert (before, 0) < (position["lsn"], position["skip"])
    kept = job.checkpoint(2)[0].position["lsn"]
    job.until(lambda: int(postgres.execute(lsn)[0][0]) >= kept)  # type: ignore[operator]


def test_a_quiet_table_lets_the_server_forget_what_others_write(
    postgres: PostgresDatabase, reading: Callable[..., Reading]
) -> None:
    postgres.execute(f"{CREATE}; CREATE TABLE other (x text)")
    job = reading(source(postgres))
    job.until(job.is_in_log)
    before = job.checkpoint()[0].position["lsn"]
    postgres.execute("INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 2000)")
    written = int(postgres.execute("SELECT pg_current_wal_lsn() - '0/0'")[0][0])
    assert written > before  # type: ignore[operator]
    job.until(lambda: job.checkpoint()[0].position["lsn"] >= written)  # type: ignore[operator]
    assert job.changes == []


def test_changes_from_now_on(postgres: PostgresDatabase, reading: Callable[..., Reading]) -> None:
    postgres.execute(f"{CREATE}; INSERT INTO t VALUES (1, 'old', 1)")
    job = reading(source(postgres, scan__startup__mode="latest-offset"))
    job.until(lambda: job.checkpoint()[0].position["lsn"] is not None)
    postgres.execute("INSERT INTO t VALUES (2, 'new', 2)")
    job.until(lambda: job.rows)
    assert list(job.rows) == [2]


def test_values_of_all_types_are_those_of_the_server(
    postgres: PostgresDatabase, reading: Callable[..., Reading]
) -> None:
    columns = {
        "b": ("boolean", t.BOOLEAN, "true"), "i": ("smallint", t.SMALLINT, "-7"), "d": ("numeric(20, 4)", t.decimal(20, 4), "12345.6789"),
        "f": ("double precision", t.DOUBLE, "0.1"), "y": ("bytea", t.BYTES, r"'\x00ff'"), "day": ("date", t.DATE, "'2024-02-29'"),
        "at": ("timestamp", t.timestamp(6), "'2024-02-29 12:34:56.123456'"), "c": ("char(4)", t.STRING, "'ab'"),
        "z": ("timestamptz", t.timestamp_ltz(3), "'2024-02-29 12:34:56.5+02'"), "j": ("jsonb", t.STRING, """'{"a": [1]}'"""),
        "a": ("integer[]", t.STRING, "'{1,2}'"), "u": ("uuid", t.STRING, "'00000000-0000-0000-0000-00000000000a'"),
    }  # fmt: skip
    declared = ", ".join(f"{name} {kind}" for name, (kind, _, _) in columns.items())
    values = ", ".join(value for _, _, value in columns.values())
    postgres.execute(f"CREATE TABLE t (id bigint PRIMARY KEY, {declared}); INSERT INTO t VALUES (1, {values})")
    schema = Schema.of(id=t.BIGINT, **{name: kind for name, (_, kind, _) in columns.items()})
    job = reading(source(postgres, schema))
    job.until(lambda: 1 in job.rows)
    postgres.execute(f"INSERT INTO t VALUES (2, {values}); INSERT INTO t VALUES (3)")
    job.until(lambda: 3 in job.rows)
    assert {**job.rows[1], "id": 2} == job.rows[2]
    assert job.rows[2]["y"] == b"\x00\xff"
    assert job.rows[2]["b"] is True
    assert str(job.rows[2]["d"]) == "12345.6789"
    assert str(job.rows[2]["z"]).startswith("2024-02-29 10:34:56.5")
    assert all(v is None for name, v in job.rows[3].items() if name != "id")


def test_values_that_are_stored_apart(postgres: PostgresDatabase, reading: Callable[..., Reading]) -> None:
    postgres.execute(f"{CREATE}; ALTER TABLE t ALTER name SET STORAGE EXTERNAL; ALTER TABLE t REPLICA IDENTITY FULL")
    job = reading(source(postgres))
    job.until(job.is_in_log)
    postgres.execute("INSERT INTO t SELECT 1, repeat('long ', 5000), 1; UPDATE t SET n = 2; UPDATE t SET id = 2")
    job.until(lambda: 2 in job.rows)
    assert job.rows == table_of(postgres)
    postgres.execute("ALTER TABLE t REPLICA IDENTITY DEFAULT")
    postgres.execute("UPDATE t SET n = 3")
    with pytest.raises(DataError, match="without the value of column 'name', which is stored apart"):
        job.until(lambda: False)


def test_columns_that_come_and_go(postgres: PostgresDatabase, reading: Callable[..., Reading]) -> None:
    postgres.execute(CREATE)
    job = reading(source(postgres))
    job.until(job.is_in_log)
    postgres.execute("ALTER TABLE t ADD COLUMN extra text DEFAULT 'e'; INSERT INTO t VALUES (1, 'a', 1, 'x')")
    job.until(lambda: 1 in job.rows)
    postgres.execute("ALTER TABLE t DROP COLUMN n; INSERT INTO t VALUES (2, 'b', 'x')")
    with pytest.raises(ConnectorError, match="has no column 'n' any more"):
        job.until(lambda: 2 in job.rows)


@pytest.mark.parametrize("ignores", [False, True])
def test_truncate(postgres: PostgresDatabase, reading: Callable[..., Reading], ignores: bool) -> None:
    postgres.execute(f"{CREATE}; INSERT INTO t VALUES (1, 'a', 1)")
    job = reading(source(postgres, **({"truncate": "ignore"} if ignores else {})))
    job.until(job.is_in_log)
    postgres.execute("INSERT INTO t VALUES (2, 'b', 2); TRUNCATE t; INSERT INTO t VALUES (3, 'c', 3)")
    if ignores:
        job.until(lambda: 3 in job.rows)
        return
    with pytest.raises(ConnectorError, match="was truncated"):
        job.until(lambda: 3 in job.rows)


def test_a_slot_that_is_gone_is_told(postgres: PostgresDatabase, reading: Callable[..., Reading]) -> None:
    postgres.execute(CREATE)
    made = source(postgres)
    job = reading(made)
    job.until(job.is_in_log)
    splits = job.checkpoint()
    job.close()
    slot = made.capture.table.slot
    deadline = time.monotonic() + SOON_S
    while postgres.execute(f"SELECT active FROM pg_replication_slots WHERE slot_name = '{slot}'")[0][0]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    postgres.execute(f"SELECT pg_drop_replication_slot('{slot}')")
    again = reading(made, splits)
    with pytest.raises(ConnectorError, match=f"the replication slot '{slot}' .* is gone: changes since .* are lost"):
        again.until(lambda: False)


def test_a_slot_that_was_read_is_not_taken_but_one_that_was_not_is_made_anew(
    postgres: PostgresDatabase, reading: Callable[..., Reading]
) -> None:
    postgres.execute(f"{CREATE}; INSERT INTO t VALUES (1, 'a', 1)")
    made = source(postgres)
    job = reading(made)
    job.until(lambda: 1 in job.rows)
    job.close()
    job = reading(made)
    job.until(job.is_in_log)
    slot = made.capture.table.slot

    def confirmed() -> int:
        query = f"SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = '{slot}'"
        return int(postgres.execute(query)[0][0])

    def moves_on() -> bool:
        job.checkpoint()
        return confirmed() > begun

    begun = confirmed()
    postgres.execute("INSERT INTO t VALUES (2, 'b', 2)")
    job.until(moves_on)
    assert 2 in job.rows
    job.close()
    with pytest.raises(ConnectorError, match="is there already: a pipeline has read from it"):
        reading(made).until(lambda: False)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"table_name": "nowhere"}, 'has no table "public"."nowhere"'),
        (
            {"password": "wrong-secret-word"},
            r"(?s)authentication failed.*check 'hostname', 'port', 'database-name', 'username'",
        ),
        ({"port": "1"}, "refused"),
        ({"debezium.database.sslmode": "require"}, "server does not support SSL, but SSL was required"),
    ],
)
def test_what_cannot_be_read_is_told(
    postgres: PostgresDatabase, reading: Callable[..., Reading], more: dict[str, str], message: str
) -> None:
    postgres.execute(CREATE)
    with pytest.raises(ConnectorError, match=message) as caught:
        reading(source(postgres, **more)).until(lambda: False)
    assert "secret-word" not in str(caught.value)


def test_options_of_scripts_of_flink(postgres: PostgresDatabase, reading: Callable[..., Reading]) -> None:
    postgres.execute(f"{CREATE}; INSERT INTO t VALUES (1, 'a', 1)")
    given = {
        "decoding.plugin.name": "pgoutput",
        "scan.incremental.snapshot.enabled": "true",
        "heartbeat.interval.ms": "30s",
        "changelog-mode": "upsert",
        "connect.timeout": "30s",
        "connect.max-retries": "3",
        "connection.pool.size": "20",
        "scan.snapshot.fetch.size": "1024",
        "debezium.database.sslmode": "disable",
    }
    checked = {"debezium.database.sslmode": "verify-full", "debezium.database.sslrootcert": "ca.pem"}
    told = source(postgres, **checked).capture.table.access.address.parameters
    assert {"sslmode": "verify-full", "sslrootcert": "ca.pem", "connect_timeout": "10"}.items() <= told.items()
    made = source(postgres, **given)
    assert made.capture.table.access.address.parameters["connect_timeout"] == "30"
    job = reading(made)
    job.until(job.is_in_log)
    assert job.rows == table_of(postgres)


def test_options_that_do_not_go_together(postgres: PostgresDatabase) -> None:
    with pytest.raises(OptionError, match="is no name of a slot"):
        source(postgres, slot__name="My-Slot")
    with pytest.raises(OptionError, match="does not read"):
        source(postgres, Schema.of(id=t.BIGINT, a=t.array(t.INT)))
    with pytest.raises(OptionError, match="port must be at most 65535"):
        source(postgres, port="65536")
    for host in ("db:5432", "postgresql://db", "me@db", "a b"):
        with pytest.raises(OptionError, match="is no name or address of a server"):
            source(postgres, hostname=host)
    assert source(postgres, hostname="::1").capture.table.server
    with pytest.raises(OptionError, match="longer than 63 bytes"):
        source(postgres, publication__name="ü" * 32)
