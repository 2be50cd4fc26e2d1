"""Flink SQL's query grammar on the expression parser: from tokens to `flowrun.frontend.sql.grammar.syntax`.

The grammar is that of the page "Queries" of Flink's SQL documentation; INTERSECT binds tighter than UNION and EXCEPT.
"""

from __future__ import annotations

from typing import Any

from flowrun.errors import near_matches
from flowrun.frontend.sql.grammar import syntax
from flowrun.frontend.sql.grammar.expressions_in_queries import QueryExpressionGrammar
from flowrun.frontend.sql.grammar.from_clause import TableGrammar
from flowrun.frontend.sql.grammar.tokens import TokenType, checked_tokens, is_mark

_STATEMENTS = frozenset({"SELECT", "WITH", "INSERT", "CREATE", "DROP", "SET", "EXPLAIN", "EXECUTE", "SHOW", "DESCRIBE"})
_CLAUSES = (
    "FROM",
    "WHERE",
    "GROUP BY",
    "HAVING",
    "WINDOW",
    "ORDER BY",
    "LIMIT",
    "OFFSET",
    "FETCH",
    "UNION",
    "EXCEPT",
    "INTERSECT",
)
_SET_KINDS = {"GROUPING SETS": syntax.SetKind.SETS, "ROLLUP": syntax.SetKind.ROLLUP, "CUBE": syntax.SetKind.CUBE}
_NOT_FLINK = {
    "MINUS": ("MINUS is not part of Flink SQL", "write EXCEPT"),
    "CLUSTER": ("CLUSTER BY is not part of Flink SQL", "leave it out"),
    "DISTRIBUTE": ("DISTRIBUTE BY is not part of Flink SQL", "leave it out"),
    "SORT": ("SORT BY is not part of Flink SQL", "write ORDER BY"),
    "CONNECT": ("CONNECT BY is not part of Flink SQL", None),
    "START": ("START WITH is not part of Flink SQL", None),
    "INTO": ("SELECT INTO is not part of Flink SQL", "write INSERT INTO table SELECT …"),
}


class QueryParser(TableGrammar, QueryExpressionGrammar):
    """Parses one query; `parse_all` is the entry."""

    def parse_all(self) -> syntax.QuerySyntax:
        """The whole text as one query."""
        query = self.query()
        if self.token:
            self._reject_foreign()
            self.fail(f"unexpected {self.shown()} after the query", self._hint_after_query())
        return query

    def _hint_after_query(self) -> str | None:
        """What may be meant by a word that cannot follow a query."""
        if self.at_kind(TokenType.STRING):
            return None
        if self.at_kind(TokenType.HINT):
            return "hints stand directly behind SELECT, or behind a table's name before its alias"
        written = self.token.text.upper()
        if written in _STATEMENTS:
            return "end the statement before it with ;"
        if written == ":":
            return "to convert a value, write CAST(value AS type)"
        close = near_matches(written, _CLAUSES)
        return f"did you mean {close[0]}?" if close else None

    # -- queries -------------------------------------------------------------------------------------------------------------

    def query(self) -> syntax.QuerySyntax:
        """[WITH …] set expression [ORDER BY …] [OFFSET …] [LIMIT … | FETCH …]."""
        start = self.here
        if not self.accept_word("WITH"):
            return self._ordered(start)
        if self.accept_word("RECURSIVE"):
            self.fail("WITH RECURSIVE is not possible in a stream", "join the levels one by one", at=self.previous)
        tables = [self._common_table()]
        while self.accept_mark(","):
            tables.append(self._common_table())
        query = self._ordered(self.token.start if self.token else start)
        return syntax.WithQuery(self.since(start), tuple(tables), query)

    def _common_table(self) -> syntax.CommonTable:
        name = self.take_name("a name for the query")
        columns = self.take_names("a column name", "column names") if self.at_mark("(") else ()
        self.expect_word("AS")
        self.expect_mark("(", "a query")
        query = self.query()
        self.expect_mark(")")
        return syntax.CommonTable(name, columns, query)

    def _ordered(self, start: int) -> syntax.QuerySyntax:
        query = self._set_expression(start)
        order = self.order_by() if self.accept_phrase("ORDER", "BY") else ()
        offset = limit = None
        while self.token:
            if offset is None and self.accept_word("OFFSET"):
                offset = self.arithmetic()
                self.accept_word("ROWS") or self.accept_word("ROW")
            elif limit is None and self.accept_word("LIMIT"):
                if self.accept_word("ALL"):
                    continue
                limit = self.arithmetic()
                if self.accept_mark(","):
                    self.fail("LIMIT takes one number", "write LIMIT count OFFSET start", at=self.previous)
            elif limit is None and self.accept_word("FETCH"):
                limit = self._fetch()
            else:
                break
        if not order and offset is None and limit is None:
            return query
        return syntax.Ordered(self.since(start), query, order, offset, limit)

    def _fetch(self) -> Any:
        if not (self.accept_word("FIRST") or self.accept_word("NEXT")):
            self.fail_expected("FIRST or NEXT")
        explicit = not self.at_word("ROW", "ROWS")
        amount = self.arithmetic() if explicit else self.number(1)
        if not (self.accept_word("ROW") or self.accept_word("ROWS")):
            self.fail_expected("ROWS")
        self.expect_word("ONLY")
        return amount

    def _set_expression(self, start: int) -> syntax.QuerySyntax:
        left = self._intersections(start)
        while self.at_word("UNION", "EXCEPT"):
            left = self._combined(start, left, self._intersections)
        return left

    def _intersections(self, start: int) -> syntax.QuerySyntax:
        left = self._query_primary()
        while self.at_word("INTERSECT"):
            left = self._combined(start, left, lambda _: self._query_primary())
        return left

    def _combined(self, start: int, left: syntax.QuerySyntax, parse: Any) -> syntax.QuerySyntax:
        operator = syntax.SetOperator(self.token.text.upper())
        self.advance()
        keep_all = self.accept_word("ALL")
        if not keep_all:
            self.accept_word("DISTINCT")
        right = parse(self.here)
        return syntax.SetOperation(self.since(start), operator, keep_all, left, right)

    def _query_primary(self) -> syntax.QuerySyntax:
        start = self.here
        if self.at_word("SELECT"):
            return self._select()
        if self.accept_word("VALUES"):
            return self.values(start)
        if self.accept_mark("("):
            query = self.query()
            self.expect_mark(")")
            return query
        if not self.accept_word("TABLE"):
            self.fail_expected("a query (SELECT, VALUES, WITH or '(')")
        table = syntax.NamedTable(self.since(start), self.table_name())
        span = self.since(start)
        return syntax.Select(span, (syntax.SelectItem(None, None, span, star=True),), source=table)

    def values(self, start: int) -> syntax.ValuesRows:
        """Rows after VALUES; a row of one column needs no parentheses."""
        rows = [self._row()]
        while self.accept_mark(","):
            rows.append(self._row())
        return syntax.ValuesRows(self.since(start), tuple(rows))

    def _row(self) -> Any:
        if self.at_word("ROW") and is_mark(self.following, "("):
            self.advance()
        if not self.accept_mark("("):
            return (self.operand(),)
        row = tuple(self.arguments())
        self.expect_mark(")")
        return row

    # -- SELECT --------------------------------------------------------------------------------------------------------------

    def _select(self) -> syntax.Select:
        start = self.token.start
        self.expect_word("SELECT")
        hints = self.hints()
        distinct = self.accept_word("DISTINCT")
        if not distinct:
            self.accept_word("ALL")
        items = [self._item()]
        while self.accept_mark(","):
            items.append(self._item())
        self._reject_foreign()
        source = self._from() if self.accept_word("FROM") else None
        self._reject_foreign()
        where = self.operand() if self.accept_word("WHERE") else None
        grouping = self._group_by() if self.accept_phrase("GROUP", "BY") else None
        having = self.operand() if self.accept_word("HAVING") else None
        windows = self._windows() if self.accept_word("WINDOW") else ()
        qualify = self.operand() if self.accept_word("QUALIFY") else None
        self._reject_foreign()
        return syntax.Select(
            self.since(start), tuple(items), distinct, source, where, grouping, having, windows, qualify, hints
        )

    def _reject_foreign(self) -> None:
        known = _NOT_FLINK.get(self.token.text.upper()) if self.token else None
        if known is not None and not self.at_kind(TokenType.STRING):
            self.fail(*known)

    def _item(self) -> syntax.SelectItem:
        if not self.token or self.at_word("FROM"):
            self.fail_expected("a column or expression")
        start = self.token.start
        if self.accept_mark("*"):
            return syntax.SelectItem(None, None, self.since(start), star=True)
        expression = self.operand()
        if self.is_star(expression):
            return syntax.SelectItem(expression, None, self.since(start), star=True)
        alias = self.alias()
        return syntax.SelectItem(expression, alias, self.since(start))

    def _group_by(self) -> tuple[syntax.GroupingElement, ...]:
        if self.accept_word("DISTINCT"):
            self.fail("GROUP BY DISTINCT is not supported", "write every grouping set once", at=self.previous)
        self.accept_word("ALL")
        return self._grouping_elements()

    def _grouping_elements(self) -> tuple[syntax.GroupingElement, ...]:
        elements = [self._grouping_element()]
        while self.accept_mark(","):
            elements.append(self._grouping_element())
        return tuple(elements)

    def _grouping_element(self) -> syntax.GroupingElement:
        start = self.here
        kind = self._set_kind()
        if kind is not None:
            self.expect_mark("(", "grouping columns")
            elements = self._grouping_elements()
            self.expect_mark(")")
            return syntax.GroupingElement(self.since(start), kind=kind, elements=elements)
        if self.at_empty_parens():
            self.advance(2)
            return syntax.GroupingElement(self.since(start))
        expression = self.operand()
        members = self.tuple_members(expression)
        return syntax.GroupingElement(self.since(start), members or (expression,))

    def _set_kind(self) -> syntax.SetKind | None:
        if self.accept_phrase("GROUPING", "SETS"):
            return syntax.SetKind.SETS
        if is_mark(self.following, "("):
            for word in ("ROLLUP", "CUBE"):
                if self.accept_word(word):
                    return _SET_KINDS[word]
        return None

    def _windows(self) -> tuple[tuple[syntax.Name, syntax.OverClause], ...]:
        found: list[tuple[syntax.Name, syntax.OverClause]] = []
        while not found or self.accept_mark(","):
            name = self.take_name("a name for the window")
            self.expect_word("AS")
            found.append((name, self.over_clause()))
        return tuple(found)

    def order_by(self) -> tuple[syntax.OrderItem, ...]:
        """Entries after ORDER BY."""
        items: list[syntax.OrderItem] = []
        while not items or self.accept_mark(","):
            start = self.here
            expression = self.operand()
            descending = self.accept_word("DESC")
            if not descending:
                self.accept_word("ASC")
            nulls_first = None
            if self.accept_word("NULLS"):
                nulls_first = self.accept_word("FIRST")
                if not nulls_first:
                    self.expect_word("LAST")
            items.append(syntax.OrderItem(expression, descending, nulls_first, self.since(start)))
        return tuple(items)

    def _from(self) -> syntax.TableSyntax:
        return self.table_list()


def parse_query(text: str) -> syntax.QuerySyntax:
    """The syntax of a query.

    Raises:
        FlinkSyntaxError: the text is no query of Flink SQL; carries the place.

    >>> parse_query("SELECT a, b AS c FROM t WHERE a > 1").items[1].alias.text
    'c'
    """
    parser = QueryParser()
    return parser.read(parser.parse_all, checked_tokens(text, "the query"), text, "the query")
