"""Names in catalogs that may come next in SQL, and the columns of their tables, as far as they are known at the moment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.frontend.sql.catalog import DEFAULT_CATALOG
from flowrun.frontend.sql.script.known_catalogs import KnownCatalogs
from flowrun.runners.editing.asked_catalogs import AskedCatalogs

_PART = r"(?:`[^`]*`|\w+)"
_PATH = re.compile(rf"(?<![\w`]){_PART}(?:\.{_PART})*")
_PATH_BEFORE = re.compile(rf"((?:{_PART}\.)*)(`[^`]*|\w*)$")
_CATALOG_TO_NAME = re.compile(r"\b(USE|DROP|DESCRIBE|DESC)\s+CATALOG\s+`?\w*$", re.IGNORECASE)
_MOST_TABLES = 8
"""Of a statement whose columns are asked for."""


@record
class NamesHere:
    """Names that may stand at a place.

    Attributes:
        begun: what stands there of one.
        kind: `catalog`, `database` or `table`.
        words: names, with a line about each.
    """

    begun: str
    kind: str
    words: tuple[tuple[str, str], ...]


@record(eq=False)
class CatalogWords:
    """The names that a text may use.

    Attributes:
        known: the catalogs of the text.
        asked: what they have said.
    """

    known: KnownCatalogs
    asked: AskedCatalogs

    def behind(self, before: str) -> NamesHere | None:
        """The names that may follow a part of a name and a dot, or name a catalog; None: no catalog is meant there."""
        found = _PATH_BEFORE.search(before)
        assert found is not None
        path, begun = _names(found[1]), found[2]
        if not path:
            return self._catalogs(begun) if _CATALOG_TO_NAME.search(before) else None
        if path[0] in self.known.catalogs and len(path) <= 2:
            return self._tables(path[0], path[1], begun) if len(path) == 2 else self._databases(path[0], begun)
        current, _ = self.known.current
        if len(path) == 1 and current in self.known.catalogs and path[0] in self._database_names(current):
            return self._tables(current, path[0], begun)
        return None

    def here(self, begun: str) -> Iterator[NamesHere]:
        """The names with which that of a table may begin: catalogs, and what is in the current one."""
        catalog, database = self.known.current
        if catalog in self.known.catalogs:
            yield self._tables(catalog, database, begun)
            yield self._databases(catalog, begun)
        yield self._catalogs(begun)

    def tables_in(self, statement: str, declared: Mapping[str, Schema]) -> Mapping[str, Schema]:
        """The columns of tables of catalogs that a statement names, by the names as it writes them, and by their last parts."""
        found: dict[str, Schema] = {}
        asked = 0
        for text in dict.fromkeys(match[0] for match in _PATH.finditer(statement)):
            place = self._place(_names(text), declared)
            if place is None or asked == _MOST_TABLES:
                continue
            asked += 1
            catalog, database, name, parts = place
            schema = self.asked.columns(self.known.catalogs[catalog], database, name)
            if schema is not None:
                found[".".join(re.findall(_PART, text)[:parts])] = schema
                found.setdefault(name, schema)
        return {name: schema for name, schema in found.items() if name not in declared}

    def _place(self, path: Sequence[str], declared: Mapping[str, Schema]) -> tuple[str, str, str, int] | None:
        """(catalog, database, table, how many parts of the path these are); None: it is no name of a table in a catalog."""
        if path[0] in self.known.catalogs:
            return None if len(path) < 3 else (path[0], path[1], path[2], 3)
        catalog, database = self.known.current
        if catalog not in self.known.catalogs:
            return None
        if len(path) > 1 and path[0] in self._database_names(catalog):
            return catalog, path[0], path[1], 2
        names = self.asked.tables(self.known.catalogs[catalog], database)
        return (catalog, database, path[0], 1) if path[0] in names and path[0] not in declared else None

    def _catalogs(self, begun: str) -> NamesHere:
        names = (*self.known.catalogs, *([DEFAULT_CATALOG] if self.known.catalogs else []))
        return NamesHere(begun, "catalog", tuple((name, "catalog") for name in names))

    def _databases(self, catalog: str, begun: str) -> NamesHere:
        return NamesHere(
            begun, "database", tuple((name, f"database of {catalog}") for name in self._database_names(catalog))
        )

    def _database_names(self, catalog: str) -> Sequence[str]:
        return self.asked.databases(self.known.catalogs[catalog])

    def _tables(self, catalog: str, database: str, begun: str) -> NamesHere:
        names = self.asked.tables(self.known.catalogs[catalog], database)
        return NamesHere(begun, "table", tuple((name, f"table of {catalog}.{database}") for name in names))


def _names(path: str) -> list[str]:
    """The parts of a name, without quotes."""
    return [part.strip("`") for part in re.findall(_PART, path)]
