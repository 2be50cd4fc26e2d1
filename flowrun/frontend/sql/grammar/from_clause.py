"""The grammar of FROM: tables, joins, subqueries, UNNEST, table functions, FOR SYSTEM_TIME AS OF, MATCH_RECOGNIZE."""

from __future__ import annotations

from sqlglot import exp

from flowrun.core.semantics import JoinKind
from flowrun.frontend.sql.grammar import syntax
from flowrun.frontend.sql.grammar.expressions import names_before_call, skip_qualifiers
from flowrun.frontend.sql.grammar.expressions_in_queries import QueryExpressionGrammar
from flowrun.frontend.sql.grammar.tokens import TokenType, is_mark, token_span

_OUTER = {"LEFT": JoinKind.LEFT, "RIGHT": JoinKind.RIGHT, "FULL": JoinKind.FULL}
_FOREIGN_JOINS = {
    "SEMI": "write WHERE EXISTS (SELECT …) or WHERE x IN (SELECT …)",
    "ANTI": "write WHERE NOT EXISTS (SELECT …)",
    "ASOF": "write JOIN versions FOR SYSTEM_TIME AS OF left.time ON …",
}
_WORDS_AS_TABLES = (TokenType.RANGE, TokenType.ROWS, TokenType.SET, TokenType.OFFSET)
"""Keywords that name a table, e.g. `FROM range`; not those that begin the next clause."""


class TableGrammar(QueryExpressionGrammar):
    """Parses what stands in FROM. Abstract: `values` is the query grammar's."""

    def values(self, start: int) -> syntax.ValuesRows:
        """Rows after VALUES."""
        raise TypeError("the query grammar defines this")

    def table_list(self) -> syntax.TableSyntax:
        """Tables separated by commas: a cross join."""
        start = self.here
        table = self._joined()
        while self.accept_mark(","):
            right = self._joined()
            table = syntax.JoinTable(self.since(start), table, right, JoinKind.INNER)
        return table

    def _joined(self) -> syntax.TableSyntax:
        start = self.here
        table = self._table()
        while True:
            joined = self._join(start, table)
            if joined is None:
                return table
            table = joined

    def _join(self, start: int, left: syntax.TableSyntax) -> syntax.TableSyntax | None:
        natural = self.accept_word("NATURAL")
        kind, cross = JoinKind.INNER, False
        if self.accept_word("CROSS"):
            cross = True
        elif self.at_word(*_OUTER):
            kind = _OUTER[self.token.text.upper()]
            self.advance()
            self.accept_word("OUTER")
        elif self.accept_word("INNER") or self.at_word(*_FOREIGN_JOINS):
            pass
        elif not self.at_word("JOIN"):
            if natural:
                self.fail_expected("JOIN")
            return None
        if self.at_word(*_FOREIGN_JOINS):
            word = self.token.text.upper()
            self.fail(f"{word} JOIN is not part of Flink SQL", _FOREIGN_JOINS[word])
        if self.at_word("APPLY"):
            self.fail("APPLY is not part of Flink SQL", "write CROSS JOIN LATERAL TABLE(f(x)) or JOIN … ON")
        self.expect_word("JOIN")
        right = self._table()
        if cross or natural:
            if self.at_word("ON", "USING"):
                self.fail(f"{'CROSS' if cross else 'NATURAL'} JOIN has no condition", "write JOIN … ON condition")
            return syntax.JoinTable(self.since(start), left, right, kind, natural)
        if self.accept_word("ON"):
            condition = self.operand()
            return syntax.JoinTable(self.since(start), left, right, kind, on=condition)
        if not self.accept_word("USING"):
            self.fail_expected("ON or USING and the condition of the join")
        using = self.take_names("a column name", "column names")
        return syntax.JoinTable(self.since(start), left, right, kind, using=using)

    def _table(self) -> syntax.TableSyntax:
        start = self.here
        table = self._atom(start)
        if self.accept_word("FOR"):
            table = self._as_of(start, table)
        if self.at_word("TABLESAMPLE"):
            self.fail("TABLESAMPLE is not supported", "filter, e.g. WHERE MOD(HASH_CODE(key), 10) = 0")
        if self.at_word("PIVOT", "UNPIVOT"):
            self.fail(f"{self.token.text.upper()} is not supported", "write SUM(x) FILTER (WHERE …) for each column")
        if self.at_word("MATCH_RECOGNIZE"):
            table = self._match_recognize(start, table)
        alias = self.alias()
        if alias is None:
            return table
        columns = self.take_names("a column name", "column names") if self.at_mark("(") else ()
        aliased = syntax.AliasedTable(self.since(start), table, alias, columns)
        if self.at_word("MATCH_RECOGNIZE"):
            matched = self._match_recognize(start, aliased)
            again = self.alias()
            return matched if again is None else syntax.AliasedTable(self.since(start), matched, again)
        return aliased

    def _as_of(self, start: int, table: syntax.TableSyntax) -> syntax.TableSyntax:
        for word in ("SYSTEM_TIME", "AS", "OF"):
            self.expect_word(word)
        time = self.arithmetic()
        if not isinstance(table, syntax.NamedTable):
            self.fail(
                "FOR SYSTEM_TIME AS OF follows only the name of a table or view",
                "give the query a name with WITH or CREATE VIEW",
                at=self.previous,
            )
        return syntax.NamedTable(self.since(start), table.parts, time, (*table.hints, *self._table_hints()))

    def _match_recognize(self, start: int, table: syntax.TableSyntax) -> syntax.TableSyntax:
        self.advance()
        self.expect_mark("(", "a pattern")
        opened, depth = self.previous.end + 1, 1
        while self.token:
            depth += self.at_mark("(") - self.at_mark(")")
            if depth == 0:
                break
            self.advance()
        body = (opened, self.here)
        self.expect_mark(")")
        return syntax.MatchTable(self.since(start), table, body)

    def _atom(self, start: int) -> syntax.TableSyntax:
        lateral = self.accept_word("LATERAL")
        if self.accept_mark("("):
            return self._parenthesised(start, lateral)
        if self.at_word("TABLE") and is_mark(self.following, "("):
            self.advance(2)
            function = self._function(start, lateral)
            self.expect_mark(")")
            return syntax.FunctionTable(self.since(start), function.name, function.arguments, lateral)
        if self.at_word("UNNEST") and is_mark(self.following, "("):
            return self._unnest(start)
        if names_before_call(self):
            return self._function(start, lateral)
        if lateral:
            self.fail_expected("TABLE(function(…)) or a query in parentheses after LATERAL")
        if self.at_word("TABLE"):
            self.advance()
        name = self.table_name()
        return syntax.NamedTable(self.since(start), name, hints=self._table_hints())

    def _parenthesised(self, start: int, lateral: bool) -> syntax.TableSyntax:
        if self._at_query():
            index = self.place
            query = self.query()
            if self.accept_mark(")"):
                return syntax.DerivedTable(self.since(start), query, lateral)
            if not self.at_word("JOIN", "LEFT", "RIGHT", "FULL", "INNER", "CROSS", "NATURAL", "AS") and (
                not self.at_kind(TokenType.VAR, TokenType.IDENTIFIER) and not self.at_mark(",")
            ):
                self.fail_expected("')' after the query")
            self.go_back(index)  # ((SELECT …) a JOIN b ON …)
        table = self.table_list()
        self.expect_mark(")")
        return table

    def _unnest(self, start: int) -> syntax.TableSyntax:
        self.advance(2)
        expression = self.operand()
        if self.accept_mark(","):
            self.fail("UNNEST takes one collection", "write one UNNEST for each", at=self.previous)
        self.expect_mark(")")
        ordinality = self.accept_phrase("WITH", "ORDINALITY")
        return syntax.UnnestTable(self.since(start), expression, ordinality)

    def table_name(self) -> tuple[syntax.Name, ...]:
        """A name with its qualifiers."""
        if not self.at_kind(TokenType.VAR, TokenType.IDENTIFIER, *_WORDS_AS_TABLES):
            self.fail_expected("a table")
        parts = [self.take_name("a table")]
        while self.accept_mark("."):
            parts.append(self.take_name("a table's name"))
        return tuple(parts)

    def hints(self) -> tuple[syntax.HintText, ...]:
        """Hints of tables and queries: /*+ NAME(…) */."""
        found = []
        while self.accept_kind(TokenType.HINT):
            text = self.previous.text.removeprefix("/*+").removesuffix("*/").strip()
            found.append(syntax.HintText(token_span(self.previous), text))
        return tuple(found)

    def _table_hints(self) -> tuple[str, ...]:
        return tuple(h.text for h in self.hints())

    # -- table functions -----------------------------------------------------------------------------------------------------

    def _function(self, start: int, lateral: bool) -> syntax.FunctionTable:
        skip_qualifiers(self)
        name = self.take_name("a table function")
        self.expect_mark("(", "arguments")
        arguments: list[syntax.FunctionArgument] = []
        while not self.at_close():
            arguments.append(self._function_argument())
            if not self.accept_mark(","):
                break
        self.expect_mark(")")
        return syntax.FunctionTable(self.since(start), name, tuple(arguments), lateral)

    def _function_argument(self) -> syntax.FunctionArgument:
        start = self.token.start
        name = None
        if is_mark(self.following, "=>"):
            name = self.take_name("an argument's name")
            self.advance()
        value_start = self.token.start if self.token else start
        value: syntax.TableArgument | syntax.Descriptor | exp.Expression
        if self.at_word("TABLE"):
            self.advance()
            value = self._table_argument(value_start)
        elif self.at_word("DESCRIPTOR") and is_mark(self.following, "("):
            self.advance()
            value = syntax.Descriptor(self.since(value_start), self.take_names("a column name", "column names"))
            value = syntax.Descriptor(self.since(value_start), value.columns)
        elif self.at_mark("(") and self._at_query():
            value = self._table_argument(value_start)
        else:
            value = self.operand()
        return syntax.FunctionArgument(self.since(start), value, name)

    def _table_argument(self, start: int) -> syntax.TableArgument:
        table: syntax.TableSyntax
        inner = self.token.start if self.token else start
        if self.accept_mark("("):
            if self._at_query():
                table = syntax.DerivedTable((inner, inner + 1), self.query())
                table = syntax.DerivedTable(self.since(inner), table.query)
            else:
                table = syntax.NamedTable((inner, inner + 1), self.table_name())
            self.expect_mark(")")
        elif names_before_call(self):
            function = self._function(inner, lateral=False)
            table = function
        else:
            table = syntax.NamedTable(self.since(inner), self.table_name(), hints=self._table_hints())
        partition: tuple[exp.Expression, ...] = ()
        order: tuple[syntax.OrderItem, ...] = ()
        if self.accept_phrase("PARTITION", "BY"):
            first = self.operand()
            partition = self.tuple_members(first) or (first,)
        if self.accept_phrase("ORDER", "BY"):
            order = self.order_by() if not self.at_mark("(") else self._wrapped_order()
        return syntax.TableArgument(self.since(start), table, partition, order)

    def _wrapped_order(self) -> tuple[syntax.OrderItem, ...]:
        self.advance()
        order = self.order_by()
        self.expect_mark(")")
        return order
