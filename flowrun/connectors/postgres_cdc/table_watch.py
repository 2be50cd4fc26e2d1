"""Whether the server still tells the changes of a table whose log is read.

The log does not say that a table was dropped, renamed or taken out of its publication: it just has no further changes, or lacks some. The
catalogs do, so they are asked now and then.
"""

from __future__ import annotations

from typing import Any

from flowrun.connectors.jdbc.quoting import identifier
from flowrun.connectors.postgres_cdc.database import CapturedTable, Wanted, check_still_published, find_table, session
from flowrun.connectors.postgres_cdc.log_places import parse_lsn
from flowrun.connectors.postgres_cdc.membership import Membership, check_kept, membership_of
from flowrun.errors import ConnectorError

_END_OF_LOG = """
SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END)::text
"""


class TableWatch:
    """Asks the catalogs about one table. What it finds is told once the log was read up to there: changes before it still count.

    Args:
        table: as it was when its log began to be read.
        membership: how it belonged to its publication then.
        wanted: what is read of it.
        interval_s: how long it waits between two questions.
        now_s: the time at which it begins, of a clock that only goes forward.
    """

    def __init__(
        self, table: CapturedTable, membership: Membership, wanted: Wanted, interval_s: float, now_s: float
    ) -> None:
        self.membership = membership
        """How the table belonged to its publication when that was asked last: all the time until then it was in it."""
        self._table = table
        self._wanted = wanted
        self._interval_s = interval_s
        self._asked_s = now_s
        self._found: tuple[ConnectorError, int] | None = None

    @property
    def has_found(self) -> bool:
        """Whether something is wrong that is not told yet."""
        return self._found is not None

    def check(self, read_lsn: int, now_s: float) -> None:
        """Ask if it is time, on a connection of its own.

        Args:
            read_lsn: up to where the log was read.
            now_s: the time.

        Raises:
            ConnectorError: the server does not tell the changes of the table any more, and all that it told were read.
        """
        if self._found is None and now_s - self._asked_s >= self._interval_s:
            self._asked_s = now_s
            self._found = self._ask()
        if self._found is not None and read_lsn >= self._found[1]:
            raise self._found[0]

    def _ask(self) -> tuple[ConnectorError, int] | None:
        """(what is wrong, a place in the log behind all changes that were told); None: nothing, or the server has no answer now."""
        try:
            with session(self._table) as connection:
                try:
                    self._look(connection)
                except ConnectorError as error:
                    return error, parse_lsn(connection.execute(_END_OF_LOG).fetchone()[0])
        except ConnectorError:  # the connection that reads the log tells what is wrong with the server
            return None
        return None

    def _look(self, connection: Any) -> None:
        table = self._table
        there = connection.execute(
            "SELECT n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s",
            [self.membership.table],
        ).fetchone()
        if there is None:
            raise ConnectorError(
                f"table {table.name} on {table.server} was dropped: there are no further changes of it",
                retryable=False,
                hint="take it out of the pipeline; or make it anew, and start the pipeline afresh, without the checkpoint",
            )
        if there != (table.schema_name, table.table_name):
            raise ConnectorError(
                f"table {table.name} on {table.server} was renamed to {'.'.join(map(identifier, there))}",
                retryable=False,
                hint="rename it back, or name it so in 'schema-name' and 'table-name'; then go on from the checkpoint",
            )
        oid, kind = find_table(connection, table)
        check_still_published(connection, table, self._wanted, is_partitioned=kind == "p")
        now = membership_of(connection, table, oid)
        check_kept(table, self.membership, now)
        self.membership = now
