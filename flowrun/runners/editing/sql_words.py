"""Words that may come next in SQL: tables, columns of those that are named, functions, options of connectors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import chain

from flowrun.connectors.formats.registry import format_names
from flowrun.connectors.registry import connector_named, connector_names
from flowrun.core.options import Option
from flowrun.core.schema import Schema
from flowrun.errors import OptionError
from flowrun.functions.registry import aggregate_functions, scalar_functions
from flowrun.plan.tables import known_metadata
from flowrun.runners.editing.catalog_words import CatalogWords, NamesHere
from flowrun.runners.editing.sql_text import cursor_between
from flowrun.runners.editing.words import Proposal, beginning_with

_KEYWORDS = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "JOIN", "LEFT JOIN", "FULL JOIN", "CROSS JOIN",
    "ON", "USING", "UNION ALL", "INTERSECT", "EXCEPT", "WITH", "AS", "DISTINCT", "CASE", "WHEN", "THEN", "ELSE", "END",
    "CAST", "AND", "OR", "NOT", "IN", "EXISTS", "BETWEEN", "LIKE", "IS NULL", "IS NOT NULL", "INSERT INTO", "VALUES",
    "CREATE TABLE", "CREATE TEMPORARY VIEW", "CREATE VIEW", "CREATE FUNCTION", "CREATE CATALOG", "DROP TABLE", "DROP VIEW",
    "DESCRIBE", "EXPLAIN", "SHOW TABLES", "SHOW VIEWS", "SHOW FUNCTIONS", "SHOW CATALOGS", "SHOW CREATE TABLE",
    "USE CATALOG", "SET", "RESET", "TABLE", "TUMBLE", "HOP", "CUMULATE", "SESSION", "DESCRIPTOR", "INTERVAL", "SECOND",
    "MINUTE", "HOUR", "DAY", "OVER", "PARTITION BY", "ROW_NUMBER()", "FOR SYSTEM_TIME AS OF", "MATCH_RECOGNIZE",
    "WATERMARK FOR", "PRIMARY KEY", "NOT ENFORCED", "EXECUTE STATEMENT SET BEGIN", "BIGINT", "INT", "STRING", "DOUBLE",
    "DECIMAL", "BOOLEAN", "DATE", "TIMESTAMP(3)", "TIMESTAMP_LTZ(3)", "ARRAY", "MAP", "ROW",
)  # fmt: skip
_BEFORE_TABLES = re.compile(r"\b(FROM|JOIN|INTO|TABLE|DESCRIBE|DESC|VIEW)\s+[`\w.]*$", re.IGNORECASE)
_WORD = re.compile(r"[`\w.]+$")
_CONNECTOR = re.compile(r"'connector'\s*=\s*'([^']*)'")
_METADATA_FROM = re.compile(r"\bMETADATA\s+FROM$", re.IGNORECASE)
_PLAIN = re.compile(r"[A-Za-z_]\w*")


def sql_proposals(
    before: str,
    after: str,
    tables: Mapping[str, Schema],
    *,
    asked: bool = True,
    catalogs: CatalogWords | None = None,
    functions: Iterable[tuple[str, str]] = (),
) -> Iterator[Proposal]:
    """The words that may follow; in comments none.

    Args:
        before: the SQL up to the place, of which the last statement counts.
        after: what follows.
        tables: the tables and views that are known, with their columns.
        asked: whether the user asks for words; else some are proposed only where a word has begun.
        catalogs: names in the catalogs that the text knows; None: it knows none.
        functions: those of the user, as `function_words` gives those of SQL.
    """
    cursor = cursor_between(before, after)
    before, statement = cursor.before, cursor.statement
    if cursor.in_comment:
        return
    if cursor.text is not None:
        yield from _in_quotes(before, cursor.text, statement)
        return
    found = _WORD.search(before)
    begun = "" if found is None else found[0]
    known = [(written(name), shown_columns(schema)) for name, schema in tables.items()]
    if catalogs is not None and (names := catalogs.behind(before)) is not None:
        yield from _in_catalogs(names)
        return
    if _BEFORE_TABLES.search(before):
        yield from beginning_with(begun, known, "table")
        for names in () if catalogs is None else catalogs.here(begun):
            yield from _in_catalogs(names)
        return
    if not begun and not asked:
        return
    if catalogs is not None:
        tables = {**catalogs.tables_in(statement, tables), **tables}
    qualifier, dot, rest = begun.rpartition(".")
    if dot:
        yield from beginning_with(rest, columns(_qualified(qualifier, statement, tables)), "column")
        return
    yield from beginning_with(
        begun, dict(chain.from_iterable(map(columns, named_in(statement, tables)))).items(), "column"
    )
    yield from beginning_with(begun, known, "table")
    if begun:
        yield from beginning_with(begun, ((word, "") for word in _KEYWORDS), "keyword")
        yield from beginning_with(begun, functions, "function")
        yield from beginning_with(begun, function_words(), "function")


def _in_catalogs(names: NamesHere) -> Iterator[Proposal]:
    """Names of catalogs, or in one, that begin with what stands there, or whose last part does: `orders` finds `public.orders`."""
    words = [(written(name), about) for name, about in names.words]
    yield from beginning_with(names.begun, words, names.kind)
    begun = names.begun.strip("`").casefold()
    if begun:
        for name, about in names.words:
            _, dot, last = name.rpartition(".")
            if dot and last.casefold().startswith(begun) and not name.casefold().startswith(begun):
                yield Proposal(written(name), names.kind, len(names.begun), about)


def named_in(text: str, tables: Mapping[str, Schema]) -> list[Schema]:
    """The columns of the tables whose names occur in a text."""
    words = set(re.findall(r"\w+", text))
    return [schema for name, schema in tables.items() if set(re.findall(r"\w+", name)) <= words]


def _qualified(qualifier: str, statement: str, tables: Mapping[str, Schema]) -> Schema | None:
    """The columns of a table by its name, or by the alias that the statement gives it."""
    name = qualifier.strip("`")
    if name in tables:
        return tables[name]
    if qualifier in tables:  # in several parts, some of them in quotes
        return tables[qualifier]
    for table, schema in tables.items():
        if re.search(rf"(?<!\w)`?{re.escape(table)}`?\s+(AS\s+)?`?{re.escape(name)}\b", statement, re.IGNORECASE):
            return schema
    return None


def columns(schema: Schema | None) -> list[tuple[str, str]]:
    """The columns as they are written, with their types."""
    return [] if schema is None else [(written(f.name), str(f.type)) for f in schema]


def shown_columns(schema: Schema) -> str:
    """The columns of a table on one line."""
    return ", ".join(f"{f.name} {f.type}" for f in schema)


@cache
def function_words() -> tuple[tuple[str, str], ...]:
    """All functions that are called by a plain name, with how they are used."""
    scalars = ((f.name, f.usage, f.doc) for f in scalar_functions())
    aggregates = ((f.name, f.usage, f.doc) for f in aggregate_functions())
    return tuple(
        (f"{name}(", f"{usage}: {doc}") for name, usage, doc in (*scalars, *aggregates) if _PLAIN.fullmatch(name)
    )


def connector_words() -> list[tuple[str, str]]:
    """All connectors, with what they are."""
    return [(name, connector_named(name).summary) for name in connector_names()]


def format_words() -> list[tuple[str, str]]:
    """All formats."""
    return [(name, "") for name in format_names()]


def option_words(connector: str) -> list[tuple[str, str]]:
    """The options of a connector, with what they do; none if there is no such connector."""
    return [(option.name, option.doc) for option in options_of(connector)]


def metadata_words(connector: str, *, written: bool) -> list[tuple[str, str]]:
    """The keys of metadata that a connector's sources fill, or that its sinks take, with their types."""
    readable, writable = known_metadata(connector)
    return [(key, str(type)) for key, type in (writable if written else readable).items()]


@cache
def options_of(connector: str) -> tuple[Option, ...]:
    """The options of a connector, of sources, sinks and lookups; none if there is no such connector."""
    try:
        found = connector_named(connector)
    except OptionError:
        return ()
    every = (*found.source_options, *found.sink_options, *found.lookup_options)
    return tuple({option.name: option for option in every}.values())


def _in_quotes(before: str, begun: str, statement: str) -> Iterator[Proposal]:
    """Names of connectors behind `'connector' = '`, of formats behind `'format' = '`, of options elsewhere in WITH (…).

    Behind `METADATA FROM '`: the keys of metadata that the connector of the table has, which is named after them.
    """
    head = before[: len(before) - len(begun) - 1].rstrip()
    if _METADATA_FROM.search(head):
        named = _CONNECTOR.search(statement)
        if named is not None:
            keys = [word for written in (False, True) for word in metadata_words(named[1], written=written)]
            yield from beginning_with(begun, dict(keys).items(), "value")
        return
    if head.endswith("="):
        option = head[:-1].rstrip()
        if option.endswith("'connector'"):
            yield from beginning_with(begun, connector_words(), "value")
        elif option.endswith(("'format'", "'value.format'", "'key.format'")):
            yield from beginning_with(begun, format_words(), "value")
        return
    if not re.search(r"\bWITH\s*\(", before, re.IGNORECASE):
        return
    yield from beginning_with(
        begun, [("connector", "What the table is in."), ("format", "How its rows are written.")], "option"
    )
    chosen = _CONNECTOR.search(before)
    if chosen is not None:
        yield from beginning_with(begun, option_words(chosen[1]), "option")


def written(name: str) -> str:
    """A name as it is written in SQL.

    >>> written("orders"), written("order lines")
    ('orders', '`order lines`')
    """
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"
