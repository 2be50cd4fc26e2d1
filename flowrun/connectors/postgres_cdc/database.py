"""The database that changes are read from: its sessions, the table, replication slots and publications."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from flowrun.connectors.jdbc.address import Address
from flowrun.connectors.jdbc.postgres.connecting import CLIENT, conninfo, server_name, translated
from flowrun.connectors.jdbc.quoting import identifier
from flowrun.connectors.jdbc.relation import Access
from flowrun.connectors.postgres_cdc.log_places import parse_lsn
from flowrun.core.record import record
from flowrun.errors import ConnectorError, did_you_mean

NEEDED_BY = "connector 'postgres-cdc'"
SETTINGS = (
    "-c client_encoding=UTF8 -c datestyle=ISO -c intervalstyle=iso_8601 -c timezone=UTC -c bytea_output=hex "
    "-c extra_float_digits=1"
)
"""Of every session: texts in one form, whatever the server's defaults are."""


@record
class CapturedTable:
    """Which table of which database, and the names of what the server keeps for this reader; can be pickled.

    Attributes:
        access: of the database; its table is the name with the schema.
        schema_name: of the table.
        table_name: without its schema.
        slot: the replication slot.
        publication: names the table to the slot.
    """

    access: Access
    schema_name: str
    table_name: str
    slot: str
    publication: str

    @property
    def name(self) -> str:
        """The table, quoted, with its schema."""
        return f"{identifier(self.schema_name)}.{identifier(self.table_name)}"

    @property
    def server(self) -> str:
        """The server and database, for messages."""
        return server_name(self.access)


def access_to(
    host: str, port: int, database: str, user: str, password: str | None, table: str, more: Mapping[str, str]
) -> Access:
    """How the database is reached; `more` is told to libpq, by its own names."""
    address = Address("postgresql", database, {"host": host, "port": str(port), **more})
    return Access(address, table, user, password)


@contextmanager
def session(table: CapturedTable) -> Iterator[Any]:
    """A connection of psycopg that commits each statement by itself. What it raises inside becomes a ConnectorError."""
    psycopg = CLIENT.module("psycopg", NEEDED_BY)
    with translated(table.access):
        connection = psycopg.connect(conninfo(table.access), autocommit=True, options=SETTINGS)
        try:
            yield connection
        finally:
            connection.close()


def silent(table: CapturedTable) -> ConnectorError:
    """What to say of a server that leaves a connection without any answer."""
    return ConnectorError(
        f"{table.server} did not answer for {table.access.silence_s:g} s",
        retryable=True,
        hint="check that it runs and can be reached",
    )


@record
class SlotState:
    """A replication slot as the server has it.

    Attributes:
        confirmed_lsn: what comes before is not sent any more.
        is_active: whether somebody reads it.
        is_lost: whether the log that it needs was removed.
    """

    confirmed_lsn: int
    is_active: bool
    is_lost: bool


def slot_state(connection: Any, table: CapturedTable) -> SlotState | None:
    """The slot; None: there is none. Raises ConnectorError if it is one of something else."""
    row = connection.execute(
        "SELECT confirmed_flush_lsn::text, active, wal_status = 'lost', plugin, database FROM pg_replication_slots WHERE slot_name = %s",
        [table.slot],
    ).fetchone()
    if row is None:
        return None
    lsn, active, lost, plugin, database = row
    if plugin != "pgoutput" or database != table.access.address.database:
        raise ConnectorError(
            f"the replication slot '{table.slot}' on {table.server} is of database '{database}' and plug-in '{plugin}'",
            retryable=False,
            hint="choose another 'slot.name'",
        )
    return SlotState(0 if lsn is None else parse_lsn(lsn), bool(active), bool(lost))


@record
class Wanted:
    """What is read of a table, as far as its declaration says.

    Attributes:
        columns: the names of the columns, those of the key among them.
        keys: the columns of the declared primary key.
        truncates: whether the log must tell that the table was truncated.
    """

    columns: tuple[str, ...]
    keys: tuple[str, ...]
    truncates: bool


_COLUMNS = """
SELECT attname::text, attgenerated <> '' FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""

_IDENTITIES = """
SELECT t.relid::text, c.relreplident::text, coalesce((
    SELECT array_agg(a.attname::text) FROM pg_index i CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
    WHERE i.indrelid = c.oid AND k.place <= i.indnkeyatts
        AND (c.relreplident = 'd' AND i.indisprimary OR c.relreplident = 'i' AND i.indisreplident)), '{}')
FROM (SELECT %(oid)s::regclass AS relid UNION SELECT relid FROM pg_partition_tree(%(oid)s) WHERE isleaf) t
JOIN pg_class c ON c.oid = t.relid WHERE c.relkind = 'r' ORDER BY c.oid
"""
"""Of the table, or of each of its partitions: its name, which replica identity it has, and the columns of that."""


def lost_meanwhile(table: CapturedTable, remedy: str | None) -> str:
    """What to do once the server has not told the changes of a table that was read: putting it right does not bring them back.

    Args:
        table: whose changes are lost.
        remedy: what puts it right; None: it is right again.
    """
    first = "" if remedy is None else f"{remedy}; then "
    return (
        f"changes since then are lost, so that going on would miss them: {first}SELECT pg_drop_replication_slot("
        f"'{table.slot}'), and start the pipeline afresh, without the checkpoint"
    )


def prepare(table: CapturedTable, wanted: Wanted, *, goes_on: bool = False) -> int:
    """Check that the server can be read so, and make the publication if it is missing.

    Args:
        table: what is read.
        wanted: of it.
        goes_on: from a checkpoint: the publication must have been there all the time.

    Returns:
        The server's number of the table (oid).

    Raises:
        ConnectorError: the server keeps no logical log, the table is not there or lacks a column, its log would not tell all changes, or
            the user may not make the publication.
    """
    with session(table) as connection:
        (level,) = connection.execute("SHOW wal_level").fetchone()
        if level != "logical":
            raise ConnectorError(
                f"{table.server} has wal_level = {level}: changes cannot be read from its log",
                retryable=False,
                hint="set wal_level = logical in postgresql.conf, and restart the server",
            )
        oid, kind = find_table(connection, table)
        _check_columns(connection, table, oid, wanted.columns)
        _check_identity(connection, table, oid, wanted.keys)
        if goes_on:
            check_still_published(connection, table, wanted, is_partitioned=kind == "p")
        elif not is_published(connection, table, wanted, is_partitioned=kind == "p"):
            name = identifier(table.publication)
            connection.execute(
                f"CREATE PUBLICATION {name} FOR TABLE {table.name} WITH (publish_via_partition_root = true)"
            )
        return oid


def find_table(connection: Any, table: CapturedTable) -> tuple[int, str]:
    """(its number (oid), its kind as `pg_class` has it). Raises ConnectorError."""
    found = connection.execute(
        "SELECT c.oid::int8, c.relkind::text, c.relpersistence::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')",
        [table.schema_name, table.table_name],
    ).fetchone()
    if found is None:
        raise ConnectorError(
            f"{table.server} has no table {table.name}",
            retryable=False,
            hint="check 'schema-name' and 'table-name', as they are spelled",
        )
    oid, kind, persistence = found
    if persistence != "p":
        raise ConnectorError(
            f"table {table.name} on {table.server} is UNLOGGED: its changes are not in the log",
            retryable=False,
            hint=f"ALTER TABLE {table.name} SET LOGGED",
        )
    return int(oid), kind


def _check_columns(connection: Any, table: CapturedTable, oid: int, columns: Sequence[str]) -> None:
    there = dict(connection.execute(_COLUMNS, [oid]).fetchall())
    for name in columns:
        if name not in there:
            raise ConnectorError(
                f"table {table.name} on {table.server} has no column '{name}'",
                retryable=False,
                hint=did_you_mean(name, there),
            )
        if there[name]:
            raise ConnectorError(
                f"column '{name}' of table {table.name} is generated, and the log does not tell its values",
                retryable=False,
                hint="do not declare it, and compute it in the pipeline",
            )


def _check_identity(connection: Any, table: CapturedTable, oid: int, keys: Sequence[str]) -> None:
    """Whether the log tells the key of each row that is removed. If a table has no identity, publishing it would even forbid updates."""
    for name, identity, columns in connection.execute(_IDENTITIES, {"oid": oid}).fetchall():
        if identity == "f":
            continue
        if not columns:
            why = "has REPLICA IDENTITY NOTHING" if identity == "n" else "has no primary key"
            raise ConnectorError(
                f"table {name} on {table.server} {why}: the log would not tell which rows are updated or removed",
                retryable=False,
                hint=f"ALTER TABLE {name} ADD PRIMARY KEY (…), or ALTER TABLE {name} REPLICA IDENTITY FULL",
            )
        check_key(keys, columns, str(name))


def check_key(keys: Sequence[str], identity: Collection[str], table: str) -> None:
    """Whether the columns that the log tells of removed rows have those of the declared key among them. Raises ConnectorError."""
    unknown = [key for key in keys if key not in identity]
    if unknown:
        raise ConnectorError(
            f"the log does not tell the '{unknown[0]}' of removed rows of table {table}, but its replica identity: "
            + ", ".join(sorted(identity)),
            retryable=False,
            hint=f"declare these as the PRIMARY KEY, or ALTER TABLE {table} REPLICA IDENTITY FULL",
        )


_PUBLICATION = """
SELECT pubviaroot, pubinsert, pubupdate, pubdelete, pubtruncate FROM pg_publication WHERE pubname = %s
"""
_PARTS_OF_TABLES = 150_000
"""The version from which a publication may name some of a table's columns and rows only."""


def is_published(connection: Any, table: CapturedTable, wanted: Wanted, *, is_partitioned: bool) -> bool:
    """Whether the publication is there. Raises ConnectorError if it is, but without changes that are needed."""
    name = identifier(table.publication)
    publication = connection.execute(_PUBLICATION, [table.publication]).fetchone()
    if publication is None:
        return False
    is_by_root, *published = publication
    shown = f"the publication '{table.publication}' on {table.server}"
    if is_partitioned and not is_by_root:
        raise ConnectorError(
            f"{shown} names changes of {table.name} by its partitions",
            retryable=False,
            hint=f"ALTER PUBLICATION {name} SET (publish_via_partition_root = true)",
        )
    needed = ("insert", "update", "delete", *(["truncate"] if wanted.truncates else []))
    missing = [what for what, is_there in zip(needed, published, strict=False) if not is_there]
    if missing:
        also = ", or set 'truncate' = 'ignore'" if missing == ["truncate"] else ""
        raise ConnectorError(
            f"{shown} does not publish {' and '.join(missing)}: such changes would be lost",
            retryable=False,
            hint=f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate'){also}",
        )
    has_parts = connection.info.server_version >= _PARTS_OF_TABLES
    parts = "attnames::text[], rowfilter" if has_parts else "NULL::text[], NULL"
    entry = connection.execute(
        f"SELECT {parts} FROM pg_publication_tables WHERE pubname = %s AND schemaname = %s AND tablename = %s",
        [table.publication, table.schema_name, table.table_name],
    ).fetchone()
    if entry is None:
        raise ConnectorError(
            f"{shown} does not have the table {table.name}",
            retryable=False,
            hint=f"ALTER PUBLICATION {name} ADD TABLE {table.name}",
        )
    columns, condition = entry
    lacking = [column for column in wanted.columns if columns is not None and column not in columns]
    if lacking or condition is not None:
        what = f"does not have column '{lacking[0]}'" if lacking else f"has only rows WHERE {condition}"
        raise ConnectorError(
            f"{shown} {what} of table {table.name}",
            retryable=False,
            hint="choose a publication with the whole table, or leave 'publication.name' out: flowrun makes one",
        )
    return True


def check_still_published(connection: Any, table: CapturedTable, wanted: Wanted, *, is_partitioned: bool) -> None:
    """Whether the publication of a table that was read is as it has to be. Raises ConnectorError if it is not."""
    try:
        is_there = is_published(connection, table, wanted, is_partitioned=is_partitioned)
    except ConnectorError as error:
        error.hint = lost_meanwhile(table, error.hint or "put that right")
        raise
    if not is_there:
        raise ConnectorError(
            f"the publication '{table.publication}' on {table.server} was dropped",
            retryable=False,
            hint=lost_meanwhile(table, "put that right"),
        )
