"""How a table is a member of its publication, kept in checkpoints.

The log has no changes of the time in which a table was out of its publication, and says nothing of that. A table that is put back is a new
entry of the catalogs, with a new number (oid): if none of the entries that there were is left, the table may have been out in between.
"""

from __future__ import annotations

from typing import Any

from flowrun.api.source import JsonValue
from flowrun.connectors.postgres_cdc.database import CapturedTable, lost_meanwhile
from flowrun.core.record import record
from flowrun.core.shapes import Shape, integer, listed, members, one_of, pair
from flowrun.errors import ConnectorError

_EVERY_TABLE, _TABLE, _SCHEMA = "pg_publication", "pg_publication_rel", "pg_publication_namespace"

MEMBERSHIP: Shape = members(
    {
        "table": integer(),
        "publication": integer(),
        "entries": listed(pair(one_of(_EVERY_TABLE, _TABLE, _SCHEMA), integer())),
    }
)
"""Of `Membership.to_json`."""

_SCHEMAS_IN_PUBLICATIONS = 150_000
"""The version from which a publication may name all tables of a schema."""

_ENTRIES = f"""
SELECT '{_EVERY_TABLE}', p.oid::int8 FROM p WHERE p.puballtables
UNION ALL SELECT '{_TABLE}', e.oid::int8 FROM p JOIN pg_publication_rel e ON e.prpubid = p.oid JOIN named ON named.relid = e.prrelid
"""
_ENTRIES_OF_SCHEMAS = f"""
UNION ALL SELECT DISTINCT '{_SCHEMA}', e.oid::int8 FROM p JOIN pg_publication_namespace e ON e.pnpubid = p.oid
    JOIN pg_class c ON c.relnamespace = e.pnnspid JOIN named ON named.relid = c.oid
"""
_WITH = """
WITH p AS (SELECT oid, puballtables FROM pg_publication WHERE pubname = %(publication)s),
    named AS (SELECT %(table)s::oid AS relid UNION SELECT relid::oid FROM pg_partition_ancestors(%(table)s::oid))
"""
"""`named`: the table, and those that it is a partition of. With these a publication names it, too."""


@record
class Membership:
    """What makes a publication tell the changes of a table.

    Attributes:
        table: the server's number of the table (oid).
        publication: that of the publication; 0: there is none.
        entries: because of which the table belongs to it, each as the catalog that it is in and its number there, in order.
    """

    table: int
    publication: int
    entries: tuple[tuple[str, int], ...]

    def to_json(self) -> JsonValue:
        """For checkpoints."""
        return {
            "table": self.table,
            "publication": self.publication,
            "entries": [list(entry) for entry in self.entries],
        }

    @classmethod
    def from_json(cls, found: Any) -> Membership:
        """As `to_json` gave it."""
        return cls(found["table"], found["publication"], tuple((catalog, oid) for catalog, oid in found["entries"]))


def membership_of(connection: Any, table: CapturedTable, oid: int) -> Membership:
    """How a table belongs to its publication now.

    Args:
        connection: of psycopg.
        table: which table, and which publication.
        oid: the server's number of the table.
    """
    has_schemas = connection.info.server_version >= _SCHEMAS_IN_PUBLICATIONS
    entries = _ENTRIES + (_ENTRIES_OF_SCHEMAS if has_schemas else "")
    publication, *found = connection.execute(
        f"{_WITH} SELECT '', coalesce((SELECT oid FROM p), 0)::int8 UNION ALL (({entries}) ORDER BY 1, 2)",
        {"publication": table.publication, "table": oid},
    ).fetchall()
    return Membership(oid, publication[1], tuple((str(catalog), int(number)) for catalog, number in found))


def check_kept(table: CapturedTable, kept: Membership, now: Membership) -> None:
    """Whether a table was in its publication all the time between two moments.

    Args:
        table: which table, and which publication.
        kept: as it was.
        now: as it is.

    Raises:
        ConnectorError: it may have been out of it, or is another table.
    """
    if now.table != kept.table:
        raise ConnectorError(
            f"table {table.name} on {table.server} is another one than that which was read: it was dropped or renamed, and made anew",
            retryable=False,
            hint=lost_meanwhile(table, None),
        )
    if now.publication != kept.publication:
        what = f"the publication '{table.publication}' on {table.server} was dropped, and made anew"
    elif not set(kept.entries) & set(now.entries):
        what = (
            f"table {table.name} was taken out of the publication '{table.publication}' on {table.server}, and put back"
        )
    else:
        return
    raise ConnectorError(what, retryable=False, hint=lost_meanwhile(table, None))
