"""The syntax of CREATE TABLE."""

from __future__ import annotations

from dataclasses import dataclass, field

from flowrun.errors import ExpressionError
from flowrun.frontend.sql.grammar.syntax import Name
from flowrun.frontend.sql.places import error_at
from flowrun.frontend.sql.script import statements
from flowrun.frontend.sql.script.tokens import Cursor, TokenKind, tokenize

_MOST_BUCKETS = 1024
_AFTER_TYPE = ("NOT", "NULL", "PRIMARY", "UNIQUE", "COMMENT", "METADATA", "CONSTRAINT", "DEFAULT", "GENERATED")


@dataclass(slots=True)
class _Body:
    """What stands between the parentheses of CREATE TABLE."""

    columns: list[statements.ColumnSyntax] = field(default_factory=list)
    watermark: statements.WatermarkSyntax | None = None
    primary_key: statements.PrimaryKeySyntax | None = None


def create_table(cursor: Cursor) -> statements.CreateTable:
    """CREATE TABLE, after these words."""
    if_not_exists = cursor.accept_phrase("IF", "NOT", "EXISTS")
    name = cursor.take_path("a table's name")
    body = _Body()
    if cursor.accept_mark("("):
        while not cursor.accept_mark(")"):
            _element(cursor, body)
            if not cursor.accept_mark(",") and not cursor.token.is_mark(")"):
                cursor.fail(f"expected ',' or ')', got {cursor.token.shown}")
    comment = cursor.take_text("a comment").text if cursor.accept_phrase("COMMENT") else None
    distribution = _distribution(cursor) if cursor.accept_phrase("DISTRIBUTED") else None
    partitions = _names(cursor) if cursor.accept_phrase("PARTITIONED", "BY") else ()
    options = option_list(cursor) if cursor.accept_phrase("WITH") else ()
    like = _like(cursor) if cursor.accept_phrase("LIKE") else None
    query = None
    if cursor.accept_phrase("AS"):
        query = cursor.take_rest("a query")
    cursor.expect_end()
    return statements.CreateTable(
        name, tuple(body.columns), body.watermark, body.primary_key, distribution, partitions, options, like, query, if_not_exists, comment
    )  # fmt: skip


def _distribution(cursor: Cursor) -> statements.DistributionSyntax:
    """BY [HASH] (columns) [INTO n BUCKETS], or INTO n BUCKETS."""
    columns: tuple[Name, ...] = ()
    if cursor.accept_phrase("BY"):
        if cursor.at_phrase("RANGE"):
            cursor.fail("DISTRIBUTED BY RANGE is not supported", hint="rows are dealt by hash: DISTRIBUTED BY (…)")
        cursor.accept_phrase("HASH")
        columns = _names(cursor)
    elif not cursor.at_phrase("INTO"):
        cursor.fail(f"expected BY (…) or INTO n BUCKETS, got {cursor.token.shown}")
    if not cursor.accept_phrase("INTO"):
        return statements.DistributionSyntax(columns, None)
    number = cursor.advance()
    if number.kind is not TokenKind.NUMBER or not number.text.isdecimal() or not 1 <= int(number.text) <= _MOST_BUCKETS:
        cursor.fail(f"expected a number of buckets from 1 to {_MOST_BUCKETS}, got {number.shown}", number)
    cursor.expect_phrase("BUCKETS")
    return statements.DistributionSyntax(columns, int(number.text))


def option_list(cursor: Cursor) -> tuple[statements.OptionSyntax, ...]:
    """`('key' = 'value', …)`."""
    cursor.expect_mark("(")
    found: list[statements.OptionSyntax] = []
    while not cursor.accept_mark(")"):
        key = cursor.take_text("an option like 'key' = 'value'")
        cursor.expect_mark("=")
        value = cursor.take_text("the option's value")
        if any(o.key == key.text for o in found):
            cursor.fail(f"option '{key.text}' is given twice", key)
        found.append(statements.OptionSyntax(key.text, key.span, value.text, value.span))
        if not cursor.accept_mark(",") and not cursor.token.is_mark(")"):
            cursor.fail(f"expected ',' or ')', got {cursor.token.shown}")
    return tuple(found)


def hinted_options(hint: str, start: int) -> tuple[statements.OptionSyntax, ...] | None:
    """The options of `OPTIONS('key'='value')` inside a hint; None if it is another hint.

    Raises:
        ExpressionError: malformed; offsets count from `start`.

    >>> [(o.key, o.value) for o in hinted_options("OPTIONS('a'='1') ", 0)]
    [('a', '1')]
    """
    try:
        cursor = Cursor(hint, tokenize(hint, 0, len(hint)), len(hint))
        if not cursor.accept_phrase("OPTIONS"):
            return None
        options = option_list(cursor)
        cursor.expect_end()
    except ExpressionError as error:
        raise ExpressionError(
            error.message, offset=start + error.offset, length=error.length, hint=error.hint
        ) from None
    return options


def _element(cursor: Cursor, body: _Body) -> None:
    if cursor.at_phrase("WATERMARK", "FOR"):
        _watermark(cursor, body)
    elif cursor.at_phrase("PRIMARY", "KEY") or (
        cursor.at_phrase("CONSTRAINT") and cursor.ahead(2).is_word("PRIMARY", "UNIQUE")
    ):
        _constraint(cursor, body)
    elif cursor.at_phrase("UNIQUE"):
        cursor.fail("UNIQUE is not supported", hint="use PRIMARY KEY (…) NOT ENFORCED")
    else:
        column = _column(cursor)
        body.columns.append(column)
        if column.primary:
            _add_key(body, statements.PrimaryKeySyntax((column.name,), column.name.span))


def _watermark(cursor: Cursor, body: _Body) -> None:
    start = cursor.token
    cursor.expect_phrase("WATERMARK", "FOR")
    column = cursor.take_path("the event-time column")
    cursor.expect_phrase("AS")
    expression = cursor.take_until("an expression")
    if body.watermark is not None:
        cursor.fail("a table has at most one WATERMARK", start)
    body.watermark = statements.WatermarkSyntax(column, expression, (start.start, cursor.previous.end))


def _constraint(cursor: Cursor, body: _Body) -> None:
    start = cursor.token
    if cursor.accept_phrase("CONSTRAINT"):
        cursor.take_name()
    if cursor.at_phrase("UNIQUE"):
        cursor.fail("UNIQUE is not supported", hint="use PRIMARY KEY (…) NOT ENFORCED")
    cursor.expect_phrase("PRIMARY", "KEY")
    columns = _names(cursor)
    _not_enforced(cursor)
    _add_key(body, statements.PrimaryKeySyntax(columns, (start.start, cursor.previous.end)))


def _add_key(body: _Body, key: statements.PrimaryKeySyntax) -> None:
    if body.primary_key is not None:
        raise error_at(
            "a table has at most one PRIMARY KEY",
            key.span,
            "name all its columns in one: PRIMARY KEY (a, b) NOT ENFORCED",
        )
    body.primary_key = key


def _not_enforced(cursor: Cursor) -> None:
    if not cursor.accept_phrase("NOT", "ENFORCED"):
        hint = "write NOT ENFORCED after it: a stream cannot check that a key is unique"
        cursor.fail(
            "a PRIMARY KEY must be NOT ENFORCED",
            cursor.token if cursor.at_phrase("ENFORCED") else cursor.previous,
            hint,
        )


def _column(cursor: Cursor) -> statements.ColumnSyntax:
    name = cursor.take_name("a column's name")
    if cursor.accept_phrase("AS"):
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
        elif cursor.accept_phrase("NULL"):
            nullable = True
        elif cursor.accept_phrase("CONSTRAINT"):
            cursor.take_name()
        elif cursor.accept_phrase("PRIMARY", "KEY"):
            _not_enforced(cursor)
            primary = True
        elif cursor.accept_phrase("METADATA"):
            kind = statements.ColumnKind.METADATA
            if cursor.accept_phrase("FROM"):
                text = cursor.take_text("the metadata key")
                key = Name(text.text, text.span, True)
            virtual = cursor.accept_phrase("VIRTUAL")
        else:
            break
    if cursor.token.is_word("DEFAULT", "GENERATED", "UNIQUE"):
        cursor.fail(f"{cursor.token.text.upper()} is not supported at a column", hint="compute it: name AS expression")
    comment = _comment(cursor)
    return statements.ColumnSyntax(
        name, kind, name.span, type=type, nullable=nullable, key=key, virtual=virtual, primary=primary, comment=comment
    )


def _comment(cursor: Cursor) -> str | None:
    return cursor.take_text("a comment").text if cursor.accept_phrase("COMMENT") else None


def _names(cursor: Cursor) -> tuple[Name, ...]:
    cursor.expect_mark("(")
    found = [cursor.take_name("a column's name")]
    while cursor.accept_mark(","):
        found.append(cursor.take_name("a column's name"))
    cursor.expect_mark(")")
    return tuple(found)


def _like(cursor: Cursor) -> statements.LikeSyntax:
    table = cursor.take_path("a table's name")
    choices: list[tuple[statements.LikeFeature, statements.LikeChoice]] = []
    if cursor.accept_mark("("):
        while not cursor.accept_mark(")"):
            choice = statements.LikeChoice(
                cursor.one_of([c.value for c in statements.LikeChoice], "INCLUDING, EXCLUDING or OVERWRITING")
            )
            feature = statements.LikeFeature(
                cursor.one_of([f.value for f in statements.LikeFeature], "a part of a table like OPTIONS")
            )
            choices.append((feature, choice))
            cursor.accept_mark(",")
    return statements.LikeSyntax(table, tuple(choices))
