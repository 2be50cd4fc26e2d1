"""Which tables a query names, before anything is bound: front ends that bind queries in the order of their needs ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from sqlglot import exp

from flowrun.core.record import record
from flowrun.frontend.sql.grammar.queries import parse_query
from flowrun.frontend.sql.grammar.syntax import NamedTable, WithQuery
from flowrun.frontend.sql.spans import FlinkSyntaxError, Span


@record
class TableName:
    """A table as a query names it, without catalog and database; `span` counts code points of the query."""

    text: str
    span: Span


def tables_named(text: str) -> tuple[TableName, ...]:
    """The tables that a query reads, in the order of the text, without those that its own WITH defines; none if it cannot be parsed.

    >>> [t.text for t in tables_named("WITH a AS (SELECT * FROM b) SELECT * FROM a JOIN c ON a.x IN (SELECT y FROM d)")]
    ['b', 'c', 'd']
    """
    try:
        syntax = parse_query(text)
    except (FlinkSyntaxError, RecursionError):
        return ()  # binding the query says what is wrong
    return tuple(sorted(_tables(syntax, frozenset()), key=lambda t: t.span))


def _tables(syntax: object, defined: frozenset[str]) -> Iterator[TableName]:
    match syntax:
        case NamedTable(parts=parts, as_of=as_of):
            if len(parts) > 1 or parts[0].text not in defined:
                yield TableName(parts[-1].text, parts[-1].span)
            yield from _tables(as_of, defined)
        case WithQuery(tables=tables, query=query):
            for table in tables:
                yield from _tables(table.query, defined)
                defined |= {table.name.text}
            yield from _tables(query, defined)
        case exp.Expression():
            for node in syntax.walk():
                yield from _tables(node.meta.get("query"), defined)
                yield from _tables(node.meta.get("over"), defined)
        case tuple():
            for item in syntax:
                yield from _tables(item, defined)
        case _ if is_dataclass(syntax):
            for field in fields(syntax):
                yield from _tables(getattr(syntax, field.name), defined)
