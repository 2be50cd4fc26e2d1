"""The grammar of FROM: tables, joins, subqueries, UNNEST, table functions, FOR SYSTEM_TIME AS OF, MATCH_RECOGNIZE."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from flowrun.core.semantics import JoinKind
from flowrun.frontend.sql.grammar import syntax
from flowrun.frontend.sql.grammar.expressions_in_queries import QueryExpressionGrammar
from flowrun.frontend.sql.grammar.qualified_calls import names_before_call, skip_qualifiers

_OUTER = {"LEFT": JoinKind.LEFT, "RIGHT": JoinKind.RIGHT, "FULL": JoinKind.FULL}
_FOREIGN_JOINS = {
    "SEMI": "write WHERE EXISTS (SELECT …) or WHERE x IN (SELECT …)",
    "ANTI": "write WHERE NOT EXISTS (SELECT …)",
    "ASOF": "write JOIN versions FOR SYSTEM_TIME AS OF left.time ON …",
}


class TableGrammar(QueryExpressionGrammar):
    """Parses what stands in FROM. Abstract: `values` is the query grammar's."""

    def values(self, start: int) -> syntax.ValuesRows:
        """Rows after VALUES."""
        raise TypeError("the query grammar defines this")

    def table_list(self) -> syntax.TableSyntax:
        """Tables separated by commas: a cross join."""
        start = self.here
        table = self._joined()
        while self.accept_kind(TokenType.COMMA):
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
                self.raise_error(f"expected JOIN, got {self.shown()}")
            return None
        if self.at_word(*_FOREIGN_JOINS):
            word = self.token.text.upper()
            self.fail_here(f"{word} JOIN is not part of Flink SQL", _FOREIGN_JOINS[word])
        if self.at_word("APPLY"):
            self.fail_here("APPLY is not part of Flink SQL", "write CROSS JOIN LATERAL TABLE(f(x)) or JOIN … ON")
        self.expect_word("JOIN")
        right = self._table()
        if cross or natural:
            if self.at_word("ON", "USING"):
                self.fail_here(f"{'CROSS' if cross else 'NATURAL'} JOIN has no condition", "write JOIN … ON condition")
            return syntax.JoinTable(self.since(start), left, right, kind, natural)
        if self.accept_word("ON"):
            condition = self.operand()
            return syntax.JoinTable(self.since(start), left, right, kind, on=condition)
        if not self.accept_word("USING"):
            self.raise_error(f"expected ON or USING and the condition of the join, got {self.shown()}")
        using = self.name_list()
        return syntax.JoinTable(self.since(start), left, right, kind, using=using)

    def _table(self) -> syntax.TableSyntax:
        start = self.here
        table = self._atom(start)
        if self.accept_kind(TokenType.FOR):
            table = self._as_of(start, table)
        if self.at_word("TABLESAMPLE"):
            self.fail_here("TABLESAMPLE is not supported", "filter, e.g. WHERE MOD(HASH_CODE(key), 10) = 0")
        if self.at_word("PIVOT", "UNPIVOT"):
            self.fail_here(
                f"{self.token.text.upper()} is not supported", "write SUM(x) FILTER (WHERE …) for each column"
            )
        if self.at_word("MATCH_RECOGNIZE"):
            table = self._match_recognize(start, table)
        alias = self.alias()
        if alias is None:
            return table
        columns = self.name_list() if self.at_kind(TokenType.L_PAREN) else ()
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
            self.fail_at_previous(
                "FOR SYSTEM_TIME AS OF follows only the name of a table or view",
                "give the query a name with WITH or CREATE VIEW",
            )
        return syntax.NamedTable(self.since(start), table.parts, time, (*table.hints, *self._table_hints()))

    def _match_recognize(self, start: int, table: syntax.TableSyntax) -> syntax.TableSyntax:
        self.advance()
        self.open_paren("a pattern")
        opened, depth = self.previous.end + 1, 1
        while self.token:
            kind = self.token.token_type
            depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
            if depth == 0:
                break
            self.advance()
        body = (opened, self.here)
        self.close_paren()
        return syntax.MatchTable(self.since(start), table, body)

    def _atom(self, start: int) -> syntax.TableSyntax:
        lateral = self.accept_word("LATERAL")
        if self.accept_kind(TokenType.L_PAREN):
            return self._parenthesised(start, lateral)
        following = self.following.token_type if self.following else None
        if self.at_word("TABLE") and following is TokenType.L_PAREN:
            self.advance(2)
            function = self._function(start, lateral)
            self.close_paren()
            return syntax.FunctionTable(self.since(start), function.name, function.arguments, lateral)
        if self.at_word("UNNEST") and following is TokenType.L_PAREN:
            return self._unnest(start)
        if names_before_call(self):
            return self._function(start, lateral)
        if lateral:
            self.raise_error(f"expected TABLE(function(…)) or a query in parentheses after LATERAL, got {self.shown()}")
        if self.at_word("TABLE"):
            self.advance()
        name = self.table_name()
        return syntax.NamedTable(self.since(start), name, hints=self._table_hints())

    def _parenthesised(self, start: int, lateral: bool) -> syntax.TableSyntax:
        if self._at_query():
            index = self.place
            query = self.query()
            if self.accept_kind(TokenType.R_PAREN):
                return syntax.DerivedTable(self.since(start), query, lateral)
            if not self.at_word("JOIN", "LEFT", "RIGHT", "FULL", "INNER", "CROSS", "NATURAL", "AS") and (
                not self.token or self.token.token_type not in (TokenType.VAR, TokenType.IDENTIFIER, TokenType.COMMA)
            ):
                self.raise_error(f"expected ')' after the query, got {self.shown()}")
            self.go_back(index)  # ((SELECT …) a JOIN b ON …)
        table = self.table_list()
        self.close_paren()
        return table

    def _unnest(self, start: int) -> syntax.TableSyntax:
        self.advance(2)
        expression = self.operand()
        if self.accept_kind(TokenType.COMMA):
            self.fail_at_previous("UNNEST takes one collection", "write one UNNEST for each")
        self.close_paren()
        ordinality = self.at_word("WITH") and bool(self.following) and self.following.text.upper() == "ORDINALITY"
        if ordinality:
            self.advance(2)
        return syntax.UnnestTable(self.since(start), expression, ordinality)

    def table_name(self) -> tuple[syntax.Name, ...]:
        """A name with its qualifiers."""
        if not self.token or (
            self.token.token_type not in (TokenType.VAR, TokenType.IDENTIFIER) and not self._is_word()
        ):
            self.raise_error(f"expected a table, got {self.shown()}")
        parts = [self.identifier("a table")]
        while self.accept_kind(TokenType.DOT):
            parts.append(self.identifier("a table's name"))
        return tuple(parts)

    def _is_word(self) -> bool:
        # a keyword that names a table, e.g. `FROM range`; not one that begins the next clause
        return self.token.token_type in (TokenType.RANGE, TokenType.ROWS, TokenType.SET, TokenType.OFFSET)

    def hints(self) -> tuple[syntax.HintText, ...]:
        """Hints of tables and queries: /*+ NAME(…) */."""
        found = []
        while self.accept_kind(TokenType.HINT):
            text = self.previous.text.removeprefix("/*+").removesuffix("*/").strip()
            found.append(syntax.HintText((self.previous.start, self.previous.end + 1), text))
        return tuple(found)

    def _table_hints(self) -> tuple[str, ...]:
        return tuple(h.text for h in self.hints())

    # -- table functions -----------------------------------------------------------------------------------------------------

    def _function(self, start: int, lateral: bool) -> syntax.FunctionTable:
        skip_qualifiers(self)
        name = self.identifier("a table function")
        self.open_paren("arguments")
        arguments: list[syntax.FunctionArgument] = []
        while not self.at_close():
            arguments.append(self._function_argument())
            if not self.accept_kind(TokenType.COMMA):
                break
        self.close_paren()
        return syntax.FunctionTable(self.since(start), name, tuple(arguments), lateral)

    def _function_argument(self) -> syntax.FunctionArgument:
        start = self.token.start
        name = None
        if self.following.token_type is TokenType.FARROW:
            name = self.identifier("an argument's name")
            self.advance()
        value_start = self.token.start if self.token else start
        following = self.following.token_type if self.following else None
        value: syntax.TableArgument | syntax.Descriptor | exp.Expression
        if self.at_word("TABLE"):
            self.advance()
            value = self._table_argument(value_start)
        elif self.at_word("DESCRIPTOR") and following is TokenType.L_PAREN:
            self.advance()
            value = syntax.Descriptor(self.since(value_start), self.name_list())
            value = syntax.Descriptor(self.since(value_start), value.columns)
        elif self.at_kind(TokenType.L_PAREN) and self._at_query():
            value = self._table_argument(value_start)
        else:
            value = self.operand()
        return syntax.FunctionArgument(self.since(start), value, name)

    def _table_argument(self, start: int) -> syntax.TableArgument:
        table: syntax.TableSyntax
        inner = self.token.start if self.token else start
        if self.accept_kind(TokenType.L_PAREN):
            if self._at_query():
                table = syntax.DerivedTable((inner, inner + 1), self.query())
                table = syntax.DerivedTable(self.since(inner), table.query)
            else:
                table = syntax.NamedTable((inner, inner + 1), self.table_name())
            self.close_paren()
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
            order = self.order_by() if not self.at_kind(TokenType.L_PAREN) else self._wrapped_order()
        return syntax.TableArgument(self.since(start), table, partition, order)

    def _wrapped_order(self) -> tuple[syntax.OrderItem, ...]:
        self.advance()
        order = self.order_by()
        self.close_paren()
        return order
