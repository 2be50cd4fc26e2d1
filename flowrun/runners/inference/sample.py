"""What was seen of data that nobody has declared, whatever it is in, and what was asked for."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any
from unicodedata import normalize

from flowrun.core.record import record
from flowrun.core.schema import Schema

Row = dict[str, Any]
"""A row as it is: column → a value of Python. The values are those of the data, so their kinds are not known before."""

NAMELESS = "A column without a name is left out: no table can name it."
"""A remark."""


@record
class Asked:
    """What somebody asks about some data.

    Attributes:
        place: where it is: a path, or a URI.
        form: its format; None: it is found out.
        rows: how many of them to look at, about.
        options: of the table that reads it, as they are to be written: values may be `${NAME}`.
        environment: what variables stand for.
        changes: whether the changes of a table are wanted, too.
        start: the folder in which what is written will run; relative paths are written as they are from there.
        download_to: the folder in which a file from the network is kept; None: it is not kept.
    """

    place: str
    form: str | None = None
    rows: int = 10_000
    options: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    changes: bool = False
    start: Path = Path()
    download_to: Path | None = None

    def written_path(self, path: str) -> str:
        """A local path as it is written down."""
        if self.start == Path() or os.path.isabs(path):
            return path
        return os.path.relpath(path, self.start)


@record
class Sample:
    """Rows of a source, and how a table reads them.

    Attributes:
        place: where they are, as people are told: without passwords.
        name: for a table of them.
        connector: which reads them.
        options: of the connector and its format, in the order in which they are written; secrets are variables.
        parts: rows of each file or partition, in the order in which a table reads them.
        looked_at: what the rows are of: `2 of 5 files`.
        schema: columns whose types are known, before those that the rows alone tell; None: the rows tell all.
        partition_by: columns that are in the names of folders.
        primary_key: columns that name a row.
        remarks: what else was seen, a line each.
        message_times_ms: of each part, the times that messages have of their own, ms since 1970; empty: they have none.
        variables: names of those that `options` need, whose values are secret.
    """

    place: str
    name: str
    connector: str
    options: tuple[tuple[str, str], ...]
    parts: tuple[tuple[Row, ...], ...]
    looked_at: str
    schema: Schema | None = None
    partition_by: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    message_times_ms: tuple[tuple[int, ...], ...] = ()
    variables: tuple[str, ...] = ()

    @property
    def rows(self) -> list[Row]:
        """Of all parts."""
        return [row for part in self.parts for row in part]


def name_for(text: str, otherwise: str) -> str:
    """A name for a table of what is called so, of letters, digits and `_` that YAML and SQL take without quotes.

    >>> name_for("Order-Items", "rows"), name_for("7", "rows"), name_for("Café", "rows"), name_for("名前", "rows")
    ('order_items', 'rows', 'cafe', 'rows')
    """
    ascii_only = normalize("NFKD", text).encode("ascii", "ignore").decode()
    name = re.sub(r"\W+", "_", ascii_only).strip("_").lower()
    return name if name and not name[0].isdigit() else otherwise
