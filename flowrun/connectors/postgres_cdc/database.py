"""The database that changes are read from: its sessions, the table, replication slots and publications."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flowrun.connectors.jdbc.address import Address
from flowrun.connectors.jdbc.postgres.connecting import CLIENT, conninfo, server_name, translated
from flowrun.connectors.jdbc.quoting import identifier
from flowrun.connectors.jdbc.relation import Access
from flowrun.connectors.postgres_cdc.log_places import parse_lsn
from flowrun.core.record import record
from flowrun.errors import ConnectorError

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


def access_to(host: str, port: int, database: str, user: str, password: str | None, table: str) -> Access:
    """How the database is reached."""
    address = Address("postgresql", database, {"host": host, "port": str(port)})
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
            hint="choose another 'slot.name'",
        )
    return SlotState(0 if lsn is None else parse_lsn(lsn), bool(active), bool(lost))


def prepare(table: CapturedTable) -> int:
    """Check that the server can be read so, and make the publication if it is missing.

    Returns:
        The server's number of the table (oid).

    Raises:
        ConnectorError: the server keeps no logical log, the table is not there, or the user may not make the publication.
    """
    with session(table) as connection:
        (level,) = connection.execute("SHOW wal_level").fetchone()
        if level != "logical":
            raise ConnectorError(
                f"{table.server} has wal_level = {level}: changes cannot be read from its log",
                hint="set wal_level = logical in postgresql.conf, and restart the server",
            )
        found = connection.execute(
            "SELECT c.oid::int8, c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')",
            [table.schema_name, table.table_name],
        ).fetchone()
        if found is None:
            raise ConnectorError(
                f"{table.server} has no table {table.name}",
                hint="check 'schema-name' and 'table-name', as they are spelled",
            )
        oid, kind = found
        _publish(connection, table, is_partitioned=kind == "p")
        return int(oid)


def _publish(connection: Any, table: CapturedTable, *, is_partitioned: bool) -> None:
    there, is_by_root = connection.execute(
        "SELECT bool_or(schemaname = %s AND tablename = %s), bool_or(p.pubviaroot) FROM pg_publication p "
        "LEFT JOIN pg_publication_tables t ON t.pubname = p.pubname WHERE p.pubname = %s",
        [table.schema_name, table.table_name, table.publication],
    ).fetchone()
    name = identifier(table.publication)
    if is_by_root is None:
        connection.execute(f"CREATE PUBLICATION {name} FOR TABLE {table.name} WITH (publish_via_partition_root = true)")
    elif is_partitioned and not is_by_root:
        raise ConnectorError(
            f"the publication '{table.publication}' on {table.server} names changes of {table.name} by its partitions",
            hint=f"ALTER PUBLICATION {name} SET (publish_via_partition_root = true)",
        )
    elif not there:
        raise ConnectorError(
            f"the publication '{table.publication}' on {table.server} does not have the table {table.name}",
            hint=f"ALTER PUBLICATION {name} ADD TABLE {table.name}",
        )
