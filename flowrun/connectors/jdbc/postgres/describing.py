"""What PostgreSQL's catalog says of a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowrun.connectors.jdbc.postgres.queries import PLACE
from flowrun.connectors.jdbc.quoting import identifier, literal
from flowrun.connectors.jdbc.relation import Piece, Relation, ServerColumn
from flowrun.errors import ConnectorError, did_you_mean

Rows = list[tuple[Any, ...]]
Run = Callable[[str], Rows]
"""Runs a query and gives its rows."""

_TABLE = """
SELECT c.oid::int8, c.relkind::text, format('%I.%I', n.nspname, c.relname)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = coalesce({candidates})
"""

_COLUMNS = """
SELECT a.attname::text, b.typname::text, format_type(a.atttypid, a.atttypmod),
    CASE WHEN coalesce(nullif(a.atttypmod, -1), t.typtypmod) >= 4 THEN ((coalesce(nullif(a.atttypmod, -1), t.typtypmod) - 4) & 65535) END,
    a.attgenerated <> ''
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid JOIN pg_type b ON b.oid = coalesce(nullif(t.typbasetype, 0), t.oid)
WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""

_PIECES = """
WITH RECURSIVE tree (oid) AS (SELECT {oid}::oid UNION SELECT i.inhrelid FROM pg_inherits i JOIN tree ON i.inhparent = tree.oid)
SELECT format('%I.%I', n.nspname, c.relname), c.relkind::text,
    CASE WHEN c.relkind IN ('r', 'm') THEN (pg_relation_size(c.oid) / current_setting('block_size')::int)::int8 ELSE 0 END,
    has_table_privilege(c.oid, 'SELECT') AND NOT (c.relrowsecurity AND c.oid <> {oid})
FROM tree JOIN pg_class c ON c.oid = tree.oid JOIN pg_namespace n ON n.oid = c.relnamespace ORDER BY c.oid
"""

_UNIQUE = """
SELECT i.indexrelid::int8, a.attname::text FROM pg_index i CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
WHERE i.indrelid = {oid} AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
    AND k.place <= i.indnkeyatts
"""

_NAMES = """
SELECT format('%s.%s', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1 LIMIT 1000
"""


def describe(table: str, run: Run) -> Relation:
    """The table of this name, perhaps with a schema before it: as it is spelled, else in lower case.

    Raises:
        ConnectorError: there is none; lists near matches.
    """
    candidates = ", ".join(f"to_regclass({literal(name)})" for name in _spellings(table))
    found = run(_TABLE.format(candidates=candidates))
    if not found:
        known = [name for (name,) in run(_NAMES)]
        plain = [name.removeprefix("public.") for name in known]
        raise ConnectorError(
            f"there is no table '{table}' in the database, or the user may not see it",
            retryable=False,
            hint=did_you_mean(table, plain),
        )
    oid, kind, name = found[0]
    columns = {
        n: ServerColumn(n, base, shown, scale if "numeric" in base else None, bool(generated))
        for n, base, shown, scale, generated in run(_COLUMNS.format(oid=oid))
    }
    keys: dict[int, set[str]] = {}
    for index, column in run(_UNIQUE.format(oid=oid)):
        keys.setdefault(index, set()).add(column)
    unique_keys = tuple(frozenset(k) for k in keys.values())
    return Relation(name, columns, _pieces(oid, kind, name, run), unique_keys, PLACE)


def _spellings(table: str) -> list[str]:
    """Names as PostgreSQL's own parser reads them.

    >>> _spellings("Shop.Orders"), _spellings("orders")
    (['"Shop"."Orders"', '"shop"."orders"'], ['"orders"'])
    """
    if '"' in table:
        return [table]
    return list(dict.fromkeys(".".join(identifier(p) for p in name.split(".")) for name in (table, table.lower())))


def _pieces(oid: int, kind: str, name: str, run: Run) -> tuple[Piece, ...]:
    """The tables that hold the rows: the partitions of a partitioned one. Without the right to all of them, or with policies of their
    own, rows are read through the table itself.
    """
    whole = (Piece(name, by_place=False),)
    if kind not in ("r", "p", "m"):
        return whole
    tree = run(_PIECES.format(oid=oid))
    if not all(kind in ("r", "m", "p") and may_read for _, kind, _, may_read in tree):
        return whole
    return tuple(
        Piece(f"ONLY {relation}", by_place=True, units=blocks) for relation, kind, blocks, _ in tree if kind != "p"
    )
