"""Words that may come next in a statement of SQL: tables, columns of those that are named, functions, options of connectors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import chain

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from flowrun.connectors.registry import connector_named, connector_names
from flowrun.core.schema import Schema
from flowrun.errors import OptionError
from flowrun.functions.registry import aggregate_names, scalar_names
from flowrun.runners.sql_session import SqlSession

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
_OPEN_TEXT = re.compile(r"'([^']*)$")
_CONNECTOR = re.compile(r"'connector'\s*=\s*'([^']*)'")
_PLAIN = re.compile(r"[A-Za-z_]\w*")
_LONGEST = 80


class SqlCompleter(Completer):
    """Proposes words for the statement before the cursor.

    Args:
        session: knows the tables.
    """

    def __init__(self, session: SqlSession) -> None:
        self._session = session

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """The words that begin with what stands before the cursor."""
        text = document.text_before_cursor
        inside = _OPEN_TEXT.search(_without_closed_texts(text))
        if inside is not None:
            yield from _beginning_with(inside[1], _in_quotes(text), "option")
            return
        found = _WORD.search(text)
        begun = "" if found is None else found[0]
        tables = self._session.tables
        if _BEFORE_TABLES.search(text):
            yield from _beginning_with(begun, map(_written, tables), "table")
            return
        if not begun and not complete_event.completion_requested:
            return
        named = _named(document.text, tables)
        qualifier, dot, rest = begun.rpartition(".")
        if dot:
            schema = tables.get(qualifier.strip("`"))
            yield from _beginning_with(rest, map(_written, () if schema is None else schema.names), "column")
            return
        columns = dict.fromkeys(chain.from_iterable(schema.names for schema in named))
        yield from _beginning_with(begun, map(_written, columns), "column")
        yield from _beginning_with(begun, map(_written, tables), "table")
        if begun:
            yield from _beginning_with(begun, _KEYWORDS, "")
            yield from _beginning_with(begun, _functions(), "function")


def _beginning_with(begun: str, words: Iterable[str], kind: str) -> Iterator[Completion]:
    wanted = begun.strip("`").casefold()
    for word in words:
        if word.strip("`").casefold().startswith(wanted) and len(word) < _LONGEST:
            yield Completion(word, start_position=-len(begun), display_meta=kind)


def _named(text: str, tables: Mapping[str, Schema]) -> list[Schema]:
    words = set(re.findall(r"\w+", text))
    return [schema for name, schema in tables.items() if set(re.findall(r"\w+", name)) <= words]


def _without_closed_texts(text: str) -> str:
    return re.sub(r"'[^']*'", lambda found: "_" * len(found[0]), text)


def _in_quotes(text: str) -> Iterator[str]:
    """Names of connectors behind `'connector' = '`, names of options behind a comma in WITH (…)."""
    before = text[: text.rfind("'")].rstrip()
    if before.endswith("="):
        if before[:-1].rstrip().endswith("'connector'"):
            yield from connector_names()
        return
    if not re.search(r"\bWITH\s*\(", text, re.IGNORECASE):
        return
    yield from ("connector", "format")
    chosen = _CONNECTOR.search(text)
    if chosen is not None:
        yield from _options(chosen[1])


@cache
def _options(name: str) -> tuple[str, ...]:
    try:
        connector = connector_named(name)
    except OptionError:
        return ()
    options = (*connector.source_options, *connector.sink_options, *connector.lookup_options)
    return tuple(dict.fromkeys(option.name for option in options))


@cache
def _functions() -> tuple[str, ...]:
    names = dict.fromkeys((*scalar_names(), *aggregate_names()))
    return tuple(f"{name}(" for name in names if _PLAIN.fullmatch(name))


def _written(name: str) -> str:
    """A name as it is written in SQL.

    >>> _written("orders"), _written("order lines")
    ('orders', '`order lines`')
    """
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"
