"""The syntax of CREATE TABLE."""

from __future__ import annotations

from dataclasses import dataclass, field

from flowrun.errors import ExpressionError
from flowrun.frontend.sql.grammar.syntax import Name
from flowrun.frontend.sql.grammar.tokens import TokenType, is_word, scan, token_span
from flowrun.frontend.sql.places import error_at
from flowrun.frontend.sql.script import statements
from flowrun.frontend.sql.script.statement_reader import StatementReader

_MOST_BUCKETS = 1024
_AFTER_TYPE = ("NOT", "NULL", "PRIMARY", "UNIQUE", "COMMENT", "METADATA", "CONSTRAINT", "DEFAULT", "GENERATED")


@dataclass(slots=True)
class _Body:
    """What stands between the parentheses of CREATE TABLE."""

    columns: list[statements.ColumnSyntax] = field(default_factory=list)
    watermark: statements.WatermarkSyntax | None = None
    primary_key: statements.PrimaryKeySyntax | None = None


def create_table(cursor: StatementReader) -> statements.CreateTable:
    """CREATE TABLE, after these words."""
    if_not_exists = cursor.accept_phrase("IF", "NOT", "EXISTS")
    name = cursor.take_path("a table's name")
    body = _Body()
    if cursor.accept_mark("("):
        while not cursor.accept_mark(")"):
            _element(cursor, body)
            if not cursor.accept_mark(",") and not cursor.at_mark(")"):
                cursor.fail_expected("',' or ')'")
    comment = cursor.take_text("a comment").text if cursor.accept_word("COMMENT") else None
    distribution = _distribution(cursor) if cursor.accept_word("DISTRIBUTED") else None
    partitions = cursor.take_names("a column's name") if cursor.accept_phrase("PARTITIONED", "BY") else ()
    options = option_list(cursor) if cursor.accept_word("WITH") else ()
    like = _like(cursor) if cursor.accept_word("LIKE") else None
    query = None
    if cursor.accept_word("AS"):
        query = cursor.take_rest("a query")
    cursor.expect_end()
    return statements.CreateTable(
        name, tuple(body.columns), body.watermark, body.primary_key, distribution, partitions, options, like, query, if_not_exists, comment
    )  # fmt: skip


def _distribution(cursor: StatementReader) -> statements.DistributionSyntax:
    """BY [HASH] (columns) [INTO n BUCKETS], or INTO n BUCKETS."""
    columns: tuple[Name, ...] = ()
    if cursor.accept_word("BY"):
        if cursor.at_word("RANGE"):
            cursor.fail("DISTRIBUTED BY RANGE is not supported", "rows are dealt by hash: DISTRIBUTED BY (…)")
        cursor.accept_word("HASH")
        columns = cursor.take_names("a column's name")
    elif not cursor.at_word("INTO"):
        cursor.fail_expected("BY (…) or INTO n BUCKETS")
    if not cursor.accept_word("INTO"):
        return statements.DistributionSyntax(columns, None)
    written = cursor.token.text if cursor.at_kind(TokenType.NUMBER) else ""
    if not written.isdecimal() or not 1 <= int(written) <= _MOST_BUCKETS:
        cursor.fail_expected(f"a number of buckets from 1 to {_MOST_BUCKETS}")
    cursor.advance()
    cursor.expect_word("BUCKETS")
    return statements.DistributionSyntax(columns, int(written))


def option_list(cursor: StatementReader) -> tuple[statements.OptionSyntax, ...]:
    """`('key' = 'value', …)`."""
    cursor.expect_mark("(")
    found: list[statements.OptionSyntax] = []
    while not cursor.accept_mark(")"):
        key = cursor.take_text("an option like 'key' = 'value'")
        cursor.expect_mark("=")
        value = cursor.take_text("the option's value")
        if any(o.key == key.text for o in found):
            cursor.fail(f"option '{key.text}' is given twice", at=key)
        found.append(statements.OptionSyntax(key.text, token_span(key), value.text, token_span(value)))
        if not cursor.accept_mark(",") and not cursor.at_mark(")"):
            cursor.fail_expected("',' or ')'")
    return tuple(found)


def hinted_options(hint: str, start: int) -> tuple[statements.OptionSyntax, ...] | None:
    """The options of `OPTIONS('key'='value')` inside a hint; None if it is another hint.

    Raises:
        ExpressionError: malformed; offsets count from `start`.

    >>> [(o.key, o.value) for o in hinted_options("OPTIONS('a'='1') ", 0)]
    [('a', '1')]
    """
    try:
        cursor = StatementReader(hint, list(scan(hint)))
        if not cursor.accept_word("OPTIONS"):
            return None
        options = option_list(cursor)
        cursor.expect_end()
    except ExpressionError as error:
        raise ExpressionError(
            error.message, offset=start + error.offset, length=error.length, hint=error.hint
        ) from None
    return options


def _element(cursor: StatementReader, body: _Body) -> None:
    if cursor.at_phrase("WATERMARK", "FOR"):
        _watermark(cursor, body)
    elif cursor.at_phrase("PRIMARY", "KEY") or (
        cursor.at_word("CONSTRAINT") and is_word(cursor.ahead(2), "PRIMARY", "UNIQUE")
    ):
        _constraint(cursor, body)
    elif cursor.at_word("UNIQUE"):
        cursor.fail("UNIQUE is not supported", "use PRIMARY KEY (…) NOT ENFORCED")
    else:
        column = _column(cursor)
        body.columns.append(column)
        if column.primary:
            _add_key(body, statements.PrimaryKeySyntax((column.name,), column.name.span))


def _watermark(cursor: StatementReader, body: _Body) -> None:
    start = cursor.token
    cursor.expect_phrase("WATERMARK", "FOR")
    column = cursor.take_path("the event-time column")
    cursor.expect_word("AS")
    expression = cursor.take_until("an expression")
    if body.watermark is not None:
        cursor.fail("a table has at most one WATERMARK", at=start)
    body.watermark = statements.WatermarkSyntax(column, expression, cursor.since(start.start))


def _constraint(cursor: StatementReader, body: _Body) -> None:
    start = cursor.token
    if cursor.accept_word("CONSTRAINT"):
        cursor.take_name()
    if cursor.at_word("UNIQUE"):
        cursor.fail("UNIQUE is not supported", "use PRIMARY KEY (…) NOT ENFORCED")
    cursor.expect_phrase("PRIMARY", "KEY")
    columns = cursor.take_names("a column's name")
    _not_enforced(cursor)
    _add_key(body, statements.PrimaryKeySyntax(columns, cursor.since(start.start)))


def _add_key(body: _Body, key: statements.PrimaryKeySyntax) -> None:
    if body.primary_key is not None:
        raise error_at(
            "a table has at most one PRIMARY KEY",
            key.span,
            "name all its columns in one: PRIMARY KEY (a, b) NOT ENFORCED",
        )
    body.primary_key = key


def _not_enforced(cursor: StatementReader) -> None:
    if not cursor.accept_phrase("NOT", "ENFORCED"):
        hint = "write NOT ENFORCED after it: a stream cannot check that a key is unique"
        at = cursor.token if cursor.at_word("ENFORCED") else cursor.previous
        cursor.fail("a PRIMARY KEY must be NOT ENFORCED", hint, at=at)


def _column(cursor: StatementReader) -> statements.ColumnSyntax:
    name = cursor.take_name("a column's name")
    if cursor.accept_word("AS"):
        expression = cursor.take_until("an expression", "COMMENT")
        comment = _comment(cursor)
        return statements.ColumnSyntax(
            name, statements.ColumnKind.COMPUTED, name.span, expression=expression, comment=comment
        )
    type = cursor.take_type(*_AFTER_TYPE)
    nullable, key, virtual, primary, kind = True, None, False, False, statements.ColumnKind.PHYSICAL
    while True:
        if cursor.accept_phrase("NOT", "NULL"):
            nullable = False
        elif cursor.accept_word("NULL"):
            nullable = True
        elif cursor.accept_word("CONSTRAINT"):
            cursor.take_name()
        elif cursor.accept_phrase("PRIMARY", "KEY"):
            _not_enforced(cursor)
            primary = True
        elif cursor.accept_word("METADATA"):
            kind = statements.ColumnKind.METADATA
            if cursor.accept_word("FROM"):
                text = cursor.take_text("the metadata key")
                key = Name(text.text, token_span(text), True)
            virtual = cursor.accept_word("VIRTUAL")
        else:
            break
    if cursor.at_word("DEFAULT", "GENERATED", "UNIQUE"):
        cursor.fail(f"{cursor.token.text.upper()} is not supported at a column", "compute it: name AS expression")
    comment = _comment(cursor)
    return statements.ColumnSyntax(
        name, kind, name.span, type=type, nullable=nullable, key=key, virtual=virtual, primary=primary, comment=comment
    )


def _comment(cursor: StatementReader) -> str | None:
    return cursor.take_text("a comment").text if cursor.accept_word("COMMENT") else None


def _like(cursor: StatementReader) -> statements.LikeSyntax:
    table = cursor.take_path("a table's name")
    choices: list[tuple[statements.LikeFeature, statements.LikeChoice]] = []
    if cursor.accept_mark("("):
        while not cursor.accept_mark(")"):
            choice = statements.LikeChoice(
                cursor.take_word([c.value for c in statements.LikeChoice], "INCLUDING, EXCLUDING or OVERWRITING")
            )
            feature = statements.LikeFeature(
                cursor.take_word([f.value for f in statements.LikeFeature], "a part of a table like OPTIONS")
            )
            choices.append((feature, choice))
            cursor.accept_mark(",")
    return statements.LikeSyntax(table, tuple(choices))
