"""Cuts the storage of a table into chunks, which are read one by one, by several connections at a time.

A chunk is a range of pages. It is found without a look at the rows, and read in the order of the disk. That rows are at other places when a
chunk is read again, after a failure, does no harm: docs/adr/045-chunks-of-pages-and-one-reader.md says why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from flowrun.api.source import JsonValue
from flowrun.core.record import record
from flowrun.errors import ConnectorError

_RANGES_OF_PAGES = 140_000
"""The version from which the server finds a range of pages without reading those before it."""
_ROWS_A_PAGE = 50.0
"""Where the server has no statistics."""

_PIECES = """
SELECT c.oid::int8, c.relkind::text, c.oid::regclass::text, pg_relation_filenode(c.oid)::int8,
    CASE WHEN c.relkind = 'r' THEN pg_relation_size(c.oid) / current_setting('block_size')::int ELSE 0 END,
    CASE WHEN c.relpages > 0 AND c.reltuples > 0 THEN c.reltuples / c.relpages END
FROM pg_class c WHERE c.oid = %(oid)s AND c.relkind <> 'p'
    OR c.oid IN (SELECT relid FROM pg_partition_tree(%(oid)s) WHERE isleaf) AND c.relkind <> 'p'
ORDER BY c.oid
"""


@record
class Chunk:
    """Pages of a table, or of a partition of it.

    Attributes:
        oid: the server's number of the table or partition.
        filenode: of its storage; another one: the server has written all rows anew, to other places.
        first: the first page.
        stop: the page behind the last.
    """

    oid: int
    filenode: int
    first: int
    stop: int

    def to_json(self) -> JsonValue:
        """For checkpoints."""
        return [self.oid, self.filenode, self.first, self.stop]


@record
class Piece:
    """Where rows of a table are stored: the table itself, or a partition.

    Attributes:
        whole: all its pages.
        rows_a_page: about so many.
    """

    whole: Chunk
    rows_a_page: float


def pieces_of(connection: Any, oid: int) -> tuple[Piece, ...]:
    """What a table consists of.

    Args:
        connection: of psycopg; in a transaction that holds a lock on the table nothing of it changes until the end of that.
        oid: of the table.

    Raises:
        ConnectorError: a partition is not stored in the database.
    """
    found = []
    for number, kind, name, filenode, pages, rows_a_page in connection.execute(_PIECES, {"oid": oid}).fetchall():
        if kind != "r":
            raise ConnectorError(
                f"{name} is a foreign table: its changes are not in the log of this server",
                retryable=False,
                hint="read the partitions that are stored here, each by a table of its own",
            )
        found.append(Piece(Chunk(number, filenode, 0, int(pages)), float(rows_a_page or _ROWS_A_PAGE)))
    return tuple(found)


def left_to_read(pieces: Sequence[Piece], left: Sequence[Chunk] | None) -> tuple[Chunk, ...]:
    """The pages that are left of a table, some of which were read before.

    Args:
        pieces: of the table as it is.
        left: what was left then; None: all.

    Returns:
        The same, or all pages if the server has meanwhile written rows to other places.

    >>> table = [Piece(Chunk(7, 70, 0, 10), 50.0)]
    >>> left_to_read(table, [Chunk(7, 70, 4, 8)])
    (Chunk(oid=7, filenode=70, first=4, stop=8),)
    >>> left_to_read(table, [Chunk(7, 69, 4, 8)])
    (Chunk(oid=7, filenode=70, first=0, stop=10),)
    """
    there = {(piece.whole.oid, piece.whole.filenode) for piece in pieces}
    if left is not None and all((chunk.oid, chunk.filenode) in there for chunk in left):
        return tuple(left)
    return tuple(piece.whole for piece in pieces)


def cut(left: Sequence[Chunk], pieces: Sequence[Piece], chunk_rows: int, server_version: int) -> tuple[Chunk, ...]:
    """Chunks of about so many rows.

    >>> cut([Chunk(7, 70, 0, 10)], [Piece(Chunk(7, 70, 0, 10), 50.0)], 200, 150000)[1:]
    (Chunk(oid=7, filenode=70, first=4, stop=8), Chunk(oid=7, filenode=70, first=8, stop=10))
    """
    if server_version < _RANGES_OF_PAGES:
        return tuple(left)
    rows_a_page = {piece.whole.oid: piece.rows_a_page for piece in pieces}
    found: list[Chunk] = []
    for chunk in left:
        pages = max(1, math.floor(chunk_rows / max(rows_a_page[chunk.oid], 1.0)))
        starts = range(chunk.first, chunk.stop, pages)
        found += [Chunk(chunk.oid, chunk.filenode, first, min(first + pages, chunk.stop)) for first in starts]
    return tuple(found)


def joined(chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """The same pages in as few chunks as possible, for checkpoints.

    >>> joined([Chunk(7, 70, 4, 8), Chunk(7, 70, 8, 10), Chunk(7, 70, 0, 2)])
    (Chunk(oid=7, filenode=70, first=0, stop=2), Chunk(oid=7, filenode=70, first=4, stop=10))
    """
    found: list[Chunk] = []
    for chunk in sorted(chunks, key=lambda c: (c.oid, c.first)):
        last = found[-1] if found else None
        if last is not None and last.oid == chunk.oid and last.stop == chunk.first:
            found[-1] = Chunk(last.oid, last.filenode, last.first, chunk.stop)
        else:
            found.append(chunk)
    return tuple(found)
