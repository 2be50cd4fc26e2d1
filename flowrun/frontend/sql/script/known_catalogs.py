"""The catalogs that a script has made known by its end, for those who write on. Nothing is asked, and what is wrong is told elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path

from flowrun.api.table_catalog import TableCatalog
from flowrun.core.record import record
from flowrun.errors import ExpressionError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.shared_parts import SharedParts, pipeline_references
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.sql.catalog import DEFAULT_CATALOG, DEFAULT_DATABASE
from flowrun.frontend.sql.script import statements
from flowrun.frontend.sql.script.catalogs import opened_catalog
from flowrun.frontend.sql.script.shared import with_shared_scripts
from flowrun.frontend.sql.script.statement_parser import FailedStatement, read_statements
from flowrun.frontend.sql.script.text import fill_script
from flowrun.frontend.sql.spans import SeveralErrors


@record
class KnownCatalog:
    """A catalog.

    Attributes:
        options: that it was created with; equal ones are the same catalog.
        open: makes a new object for it, which is not connected.
    """

    options: tuple[tuple[str, str], ...] = field(repr=False)
    open: Callable[[], TableCatalog] = field(compare=False)


@record
class KnownCatalogs:
    """The catalogs of a script.

    Attributes:
        catalogs: by name.
        current: catalog and database in which names are looked up that say none.
    """

    catalogs: Mapping[str, KnownCatalog] = field(default_factory=dict)
    current: tuple[str, str] = (DEFAULT_CATALOG, DEFAULT_DATABASE)


def catalogs_of(
    source: SourceText,
    *,
    variables: Mapping[str, str],
    environment: Mapping[str, str],
    folder: Path,
    shared: SharedParts | None = None,
) -> KnownCatalogs:
    """The catalogs that a script creates and does not drop. Arguments as of `flowrun.frontend.sql.script.script.read_script`."""
    diagnostics = Diagnostics(source)
    references = pipeline_references(shared, variables, environment, folder)
    script = fill_script(source, references, diagnostics)
    if shared is not None:
        script, _ = with_shared_scripts(script, shared, references, diagnostics)
    found: dict[str, KnownCatalog] = {}
    current = (DEFAULT_CATALOG, DEFAULT_DATABASE)
    for read in read_statements(script.text):
        if isinstance(read, FailedStatement):
            continue
        match read.statement:
            case statements.CreateCatalog() as created:
                with suppress(ExpressionError, SeveralErrors):
                    opened_catalog(created)
                    found.setdefault(created.name.text, _known(created))
            case statements.Drop(kind=statements.ObjectKind.CATALOG, name=name):
                found.pop(name[0].text, None)
            case statements.Use() as use:
                current = _used(use, found, current)
    return KnownCatalogs(found, current)


def _known(created: statements.CreateCatalog) -> KnownCatalog:
    options = tuple(sorted((option.key, option.value) for option in created.options))
    return KnownCatalog(options, lambda: opened_catalog(created)[1])


def _used(use: statements.Use, found: Mapping[str, KnownCatalog], current: tuple[str, str]) -> tuple[str, str]:
    names = [name.text for name in use.path]
    if not use.catalog:
        return (current[0], names[0]) if len(names) == 1 else (names[0], names[1])
    if names[0] in found:
        return names[0], found[names[0]].open().default_database
    return (DEFAULT_CATALOG, DEFAULT_DATABASE) if names[0] == DEFAULT_CATALOG else current
