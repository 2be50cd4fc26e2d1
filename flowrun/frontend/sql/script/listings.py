"""What DESCRIBE and SHOW answer: tables of text, as Flink's client shows them."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence

from flowrun.core.schema import Schema
from flowrun.frontend.sql.catalog import Catalog, CatalogView, TablePath
from flowrun.frontend.sql.script.statements import (
    ColumnKind,
    ColumnSyntax,
    CreateCatalog,
    Listing,
    NameFilter,
    OptionSyntax,
)
from flowrun.frontend.sql.script.tables import DeclaredTable
from flowrun.functions.registry import aggregate_functions, scalar_functions
from flowrun.masking import MASK

_HEADERS = {
    Listing.TABLES: "table name",
    Listing.VIEWS: "view name",
    Listing.FUNCTIONS: "function name",
    Listing.USER_FUNCTIONS: "function name",
    Listing.CATALOGS: "catalog name",
    Listing.CURRENT_CATALOG: "current catalog name",
    Listing.DATABASES: "database name",
    Listing.CURRENT_DATABASE: "current database name",
    Listing.MODULES: "module name",
    Listing.JARS: "jars",
}


def text_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows in a box, columns as wide as they need.

    >>> print(text_table(["name", "type"], [["id", "BIGINT"]]))
    +------+--------+
    | name |   type |
    +------+--------+
    |   id | BIGINT |
    +------+--------+
    1 row in set
    """
    shown = [list(r) for r in rows]
    if not shown:
        return "Empty set"
    widths = [max(len(c) for c in column) for column in zip(headers, *shown, strict=True)]
    rule = "+" + "+".join("-" * (w + 2) for w in widths) + "+"
    lines = [
        "| " + " | ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) + " |"
        for row in [list(headers), *shown]
    ]
    count = f"{len(shown)} row{'s' if len(shown) > 1 else ''} in set"
    return "\n".join((rule, lines[0], rule, *lines[1:], rule, count))


def described_table(made: DeclaredTable, chosen: NameFilter | None = None) -> str:
    """The columns of a table: name, type, whether NULL may occur, key, extras, watermark."""
    syntax = {c.name.text: c for c in made.syntax.columns}
    mark = made.syntax.watermark
    rows = []
    key = ", ".join(made.table.primary_key)
    for field in (f for f in made.table.schema if _is_chosen(f.name, chosen)):
        column = syntax.get(field.name)
        is_time = mark is not None and mark.column[0].text == field.name
        rows.append(
            [
                field.name,
                str(field.type) + (" *ROWTIME*" if is_time else ""),
                "TRUE" if field.nullable else "FALSE",
                f"PRI({key})" if field.name in made.table.primary_key else "",
                _extras(column) if column is not None else "",
                mark.expression.text if mark is not None and is_time else "",
            ]
        )
    return text_table(["name", "type", "null", "key", "extras", "watermark"], rows)


def described_view(schema: Schema, chosen: NameFilter | None = None) -> str:
    """The columns of a view."""
    fields = [f for f in schema if _is_chosen(f.name, chosen)]
    rows = [[f.name, str(f.type), "TRUE" if f.nullable else "FALSE", "", "", ""] for f in fields]
    return text_table(["name", "type", "null", "key", "extras", "watermark"], rows)


def listed(listing: Listing, names: Iterable[str], chosen: NameFilter | None = None) -> str:
    """What SHOW answers: those of the names that are chosen, sorted."""
    return text_table([_HEADERS[listing]], [[n] for n in sorted(names) if _is_chosen(n, chosen)])


def function_names(catalog: Catalog, *, only_users: bool) -> set[str]:
    """Names of functions: those of the script, and of built-in ones those that are called by name."""
    own = {f.name for f in catalog.functions.values()}
    if only_users:
        return own
    built_in = {f.name for f in scalar_functions()} | {f.name for f in aggregate_functions()}
    return own | {b for b in built_in if b.isidentifier()}


def described_catalog(statement: CreateCatalog, secret: Container[str]) -> str:
    """The options of a catalog; values of secret ones are not shown."""
    rows = [["name", statement.name.text], *([["comment", statement.comment]] if statement.comment else [])]
    rows += [[f"option:{o.key}", MASK if o.key in secret else o.value] for o in statement.options]
    return text_table(["info name", "info value"], rows)


def created_catalog(statement: CreateCatalog, secret: Container[str]) -> str:
    """The CREATE CATALOG statement of a catalog. Values of secret options are not shown."""
    text = f"CREATE CATALOG {_back_ticked(statement.name.text)}{_comment(statement.comment, chr(10))}"
    return text + _with(statement.options, secret)


def _is_chosen(name: str, chosen: NameFilter | None) -> bool:
    if chosen is None:
        return True
    pattern = "".join({"%": ".*", "_": "."}.get(c, re.escape(c)) for c in chosen.pattern)
    return (re.fullmatch(pattern, name, re.IGNORECASE if chosen.any_case else 0) is not None) != chosen.negated


def created_table(made: DeclaredTable, path: TablePath) -> str:
    """The CREATE TABLE statement of a table, with what LIKE took over. Values of secret options are not shown."""
    syntax, table = made.syntax, made.table
    lines = [f"  {_column(c)}" for c in syntax.columns] or [f"  {_back_ticked(f.name)} {f.type}" for f in table.schema]
    if syntax.watermark is not None:
        lines.append(
            f"  WATERMARK FOR {_back_ticked(syntax.watermark.column[0].text)} AS {syntax.watermark.expression.text}"
        )
    if table.primary_key:
        lines.append(f"  PRIMARY KEY ({', '.join(map(_back_ticked, table.primary_key))}) NOT ENFORCED")
    temporary = "TEMPORARY " if syntax.temporary else ""
    text = (
        f"CREATE {temporary}TABLE {_full_name(path)} (\n" + ",\n".join(lines) + "\n)" + _comment(syntax.comment, "\n")
    )
    if syntax.distribution is not None:
        names = ", ".join(_back_ticked(c.text) for c in syntax.distribution.columns)
        number = syntax.distribution.buckets
        text += "\nDISTRIBUTED" + (f" BY ({names})" if names else "") + (f" INTO {number} BUCKETS" if number else "")
    if made.columns.partitions:
        text += f"\nPARTITIONED BY ({', '.join(map(_back_ticked, made.columns.partitions))})"
    return text + _with(syntax.options, table.reference.secret_options)


def _with(given: Sequence[OptionSyntax], secret: Container[str]) -> str:
    options = [f"  '{_quoted(o.key)}' = '{MASK if o.key in secret else _quoted(o.value)}'" for o in given]
    return "\nWITH (\n" + ",\n".join(options) + "\n)" if options else ""


def _full_name(path: TablePath) -> str:
    """All parts of a name in back ticks; the last one alone if it is local."""
    if path.is_local:
        return _back_ticked(path.name)
    return ".".join(map(_back_ticked, (path.catalog, path.database, path.name)))


def _back_ticked(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def created_view(view: CatalogView, path: TablePath) -> str:
    """The CREATE VIEW statement of a view."""
    columns = ", ".join(map(_back_ticked, view.node.schema.names))
    temporary = "" if path.is_local else "TEMPORARY "
    return f"CREATE {temporary}VIEW {_full_name(path)} ({columns})\nAS {view.text}"


def _extras(column: ColumnSyntax) -> str:
    if column.kind is ColumnKind.COMPUTED and column.expression is not None:
        return f"AS {column.expression.text}"
    if column.kind is ColumnKind.METADATA:
        return f"METADATA{_from(column)}{' VIRTUAL' if column.virtual else ''}"
    return ""


def _from(column: ColumnSyntax) -> str:
    return f" FROM '{column.key.text}'" if column.key is not None else ""


def _column(column: ColumnSyntax) -> str:
    name, comment = _back_ticked(column.name.text), _comment(column.comment)
    if column.kind is ColumnKind.COMPUTED and column.expression is not None:
        return f"{name} AS {column.expression.text}{comment}"
    type = column.type.text if column.type is not None else ""
    extras = f" {_extras(column)}" if column.kind is ColumnKind.METADATA else ""
    return f"{name} {type}{'' if column.nullable else ' NOT NULL'}{extras}{comment}"


def _comment(comment: str | None, before: str = " ") -> str:
    return "" if comment is None else f"{before}COMMENT '{_quoted(comment)}'"


def _quoted(text: str) -> str:
    return text.replace("'", "''")
