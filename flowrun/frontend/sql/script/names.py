"""What names in statements stand for, and which of them are not to be looked at, as their own statements are wrong."""

from __future__ import annotations

from flowrun.frontend.sql.catalog import (
    DEFAULT_CATALOG,
    DEFAULT_DATABASE,
    Catalog,
    CatalogView,
    NoticedError,
    TablePath,
)
from flowrun.frontend.sql.grammar.syntax import Name
from flowrun.frontend.sql.script.catalogs import ScriptCatalogs, marked
from flowrun.frontend.sql.spans import error_at


class ScriptNames:
    """The names of a script.

    Args:
        catalog: the tables, views and functions that statements have made.
        catalogs: the catalogs that they have made.
    """

    def __init__(self, catalog: Catalog, catalogs: ScriptCatalogs) -> None:
        self._catalog = catalog
        self._catalogs = catalogs
        self._poisoned: set[str] = set()
        self.given: set[str] = set()
        """All names that the script gives to tables and views, whether their statements are right or wrong."""

    def poison(self, name: str | None) -> None:
        """What names this from now on is not looked at: its own statement is wrong, which has been reported."""
        if name is not None:
            self._poisoned.add(name)
            self.given.add(name)

    def forgive(self, name: str) -> None:
        """A statement that is right has made or dropped this."""
        self._poisoned.discard(name)

    def is_poisoned(self, name: str) -> bool:
        """Whether the statement that makes it is wrong."""
        return name in self._poisoned

    def reject_poisoned(self, *names: str) -> None:
        """Raise NoticedError if one of the names is poisoned."""
        if any(map(self.is_poisoned, names)):
            raise NoticedError

    def path(self, name: tuple[Name, ...]) -> TablePath:
        """The full name of a table or view.

        Raises:
            ExpressionError: it has too many parts, or is in a database of the script's own catalog that does not exist.
        """
        with marked([n.span for n in name]):
            path = self._catalog.path([n.text for n in name])
            if path.catalog == DEFAULT_CATALOG:
                self._catalogs.database(path.database_path)
        return path

    def new_path(self, name: tuple[Name, ...], *, if_not_exists: bool) -> TablePath | None:
        """The full name that a statement may give; None if it is taken and that is fine.

        Raises:
            ExpressionError: it is taken, or no name: see `path`.
            NoticedError: the statement that makes its catalog is wrong.
        """
        self.reject_poisoned(*(n.text for n in name[:-1]))
        path = self.path(name)
        self.given.add(str(path))
        existing = self._catalog.declared(path)
        if existing is None:
            self.forgive(path.name)
            return path
        if if_not_exists:
            return None
        what = "view" if isinstance(existing, CatalogView) else "table"
        where = f" in line {existing.location.line}" if existing.location is not None else ""
        raise error_at(
            f"{what} '{path}' exists already{where}",
            name[-1].span,
            f"choose another name, or DROP {what.upper()} it before",
        )


def function_name(path: tuple[Name, ...]) -> str:
    """The last part of a function's name: all of a script are in one database, whatever the current one is.

    Raises:
        ExpressionError: it says another database.
    """
    qualifiers = [n.text for n in path[:-1]]
    if qualifiers not in ([], [DEFAULT_DATABASE], [DEFAULT_CATALOG, DEFAULT_DATABASE]):
        shown = ".".join(n.text for n in path)
        raise error_at(
            f"'{shown}' is in a catalog or database that has no functions of scripts",
            (path[0].span[0], path[-1].span[1]),
            f"all functions of a script are in {DEFAULT_CATALOG}.{DEFAULT_DATABASE}: write {path[-1].text}",
        )
    return path[-1].text
