"""The syntax of CREATE TABLE."""

from __future__ import annotations

from dataclasses import dataclass, field

from flowrun.errors import ExpressionError
from flowrun.frontend.sql.grammar.syntax import Name
from flowrun.frontend.sql.grammar.tokens import TokenType, is_word, scan, token_span
from flowrun.frontend.sql.script import statements
from flowrun.frontend.sql.script.statement_reader import StatementReader
from flowrun.frontend.sql.spans import error_at

_MOST_BUCKETS = 1024
_AFTER_TYPE = ("NOT", "NULL", "PRIMARY", "UNIQUE", "COMMENT", "METADATA", "CONSTRAINT", "DEFAULT", "GENERATED")


@dataclass(slots=True)
class _Body:
    """What stands between the parentheses of CREATE TABLE."""

    columns: list[statements.ColumnSyntax] = field(default_factory=list)
    watermark: statements.WatermarkSyntax | None = None
    primary_key: statements.PrimaryKeySyntax | None = None


def create_table(reader: StatementReader) -> statements.CreateTable:
    """CREATE TABLE, after these words."""
    if_not_exists = reader.accept_phrase("IF", "NOT", "EXISTS")
    name = reader.take_path("a table's name")
    body = _Body()
    if reader.accept_mark("("):
        while not reader.accept_mark(")"):
            _element(reader, body)
            if not reader.accept_mark(",") and not reader.at_mark(")"):
                reader.fail_expected("',' or ')'")
    comment = reader.take_text("a comment").text if reader.accept_word("COMMENT") else None
    distribution = _distribution(reader) if reader.accept_word("DISTRIBUTED") else None
    partitions = reader.take_names("a column's name") if reader.accept_phrase("PARTITIONED", "BY") else ()
    options = option_list(reader) if reader.accept_word("WITH") else ()
    like = _like(reader) if reader.accept_word("LIKE") else None
    query = None
    if reader.accept_word("AS"):
        query = reader.take_rest("a query")
    reader.expect_end()
    return statements.CreateTable(
        name, tuple(body.columns), body.watermark, body.primary_key, distribution, partitions, options, like, query, if_not_exists, comment
    )  # fmt: skip


def _distribution(reader: StatementReader) -> statements.DistributionSyntax:
    """BY [HASH] (columns) [INTO n BUCKETS], or INTO n BUCKETS."""
    columns: tuple[Name, ...] = ()
    if reader.accept_word("BY"):
        if reader.at_word("RANGE"):
            reader.fail("DISTRIBUTED BY RANGE is not supported", "rows are dealt by hash: DISTRIBUTED BY (…)")
        reader.accept_word("HASH")
        columns = reader.take_names("a column's name")
    elif not reader.at_word("INTO"):
        reader.fail_expected("BY (…) or INTO n BUCKETS")
    if not reader.accept_word("INTO"):
        return statements.DistributionSyntax(columns, None)
    written = reader.token.text if reader.at_kind(TokenType.NUMBER) else ""
    if not written.isdecimal() or not 1 <= int(written) <= _MOST_BUCKETS:
        reader.fail_expected(f"a number of buckets from 1 to {_MOST_BUCKETS}")
    reader.advance()
    reader.expect_word("BUCKETS")
    return statements.DistributionSyntax(columns, int(written))


def option_list(reader: StatementReader) -> tuple[statements.OptionSyntax, ...]:
    """`('key' = 'value', …)`."""
    reader.expect_mark("(")
    found: list[statements.OptionSyntax] = []
    while not reader.accept_mark(")"):
        key = reader.take_text("an option like 'key' = 'value'")
        reader.expect_mark("=")
        value = reader.take_text("the option's value")
        if any(o.key == key.text for o in found):
            reader.fail(f"option '{key.text}' is given twice", at=key)
        found.append(statements.OptionSyntax(key.text, token_span(key), value.text, token_span(value)))
        if not reader.accept_mark(",") and not reader.at_mark(")"):
            reader.fail_expected("',' or ')'")
    return tuple(found)


def hinted_options(hint: str, start: int) -> tuple[statements.OptionSyntax, ...] | None:
    """The options of `OPTIONS('key'='value')` inside a hint; None if it is another hint.

    Raises:
        ExpressionError: malformed; offsets count from `start`.

    >>> [(o.key, o.value) for o in hinted_options("OPTIONS('a'='1') ", 0)]
    [('a', '1')]
    """
    try:
        reader = StatementReader(hint, list(scan(hint)))
        if not reader.accept_word("OPTIONS"):
            return None
        options = option_list(reader)
        reader.expect_end()
    except ExpressionError as error:
        raise ExpressionError(
            error.message, offset=start + error.offset, length=error.length, hint=error.hint
        ) from None
    return options


def _element(reader: StatementReader, body: _Body) -> None:
    if reader.at_phrase("WATERMARK", "FOR"):
        _watermark(reader, body)
    elif reader.at_phrase("PRIMARY", "KEY") or (
        reader.at_word("CONSTRAINT") and is_word(reader.ahead(2), "PRIMARY", "UNIQUE")
    ):
        _constraint(reader, body)
    elif reader.at_word("UNIQUE"):
        reader.fail("UNIQUE is not supported", "use PRIMARY KEY (…) NOT ENFORCED")
    else:
        column = _column(reader)
        body.columns.append(column)
        if column.primary:
            _add_key(body, statements.PrimaryKeySyntax((column.name,), column.name.span))


def _watermark(reader: StatementReader, body: _Body) -> None:
    start = reader.token
    reader.expect_phrase("WATERMARK", "FOR")
    column = reader.take_path("the event-time column")
    reader.expect_word("AS")
    expression = reader.take_until("an expression")
    if body.watermark is not None:
        reader.fail("a table has at most one WATERMARK", at=start)
    body.watermark = statements.WatermarkSyntax(column, expression, reader.since(start.start))


def _constraint(reader: StatementReader, body: _Body) -> None:
    start = reader.token
    if reader.accept_word("CONSTRAINT"):
        reader.take_name()
    if reader.at_word("UNIQUE"):
        reader.fail("UNIQUE is not supported", "use PRIMARY KEY (…) NOT ENFORCED")
    reader.expect_phrase("PRIMARY", "KEY")
    columns = reader.take_names("a column's name")
    _not_enforced(reader)
    _add_key(body, statements.PrimaryKeySyntax(columns, reader.since(start.start)))


def _add_key(body: _Body, key: statements.PrimaryKeySyntax) -> None:
    if body.primary_key is not None:
        raise error_at(
            "a table has at most one PRIMARY KEY",
            key.span,
            "name all its columns in one: PRIMARY KEY (a, b) NOT ENFORCED",
        )
    body.primary_key = key


def _not_enforced(reader: StatementReader) -> None:
    if not reader.accept_phrase("NOT", "ENFORCED"):
        hint = "write NOT ENFORCED after it: a stream cannot check that a key is unique"
        at = reader.token if reader.at_word("ENFORCED") else reader.previous
        reader.fail("a PRIMARY KEY must be NOT ENFORCED", hint, at=at)


def _column(reader: StatementReader) -> statements.ColumnSyntax:
    name = reader.take_name("a column's name")
    if reader.accept_word("AS"):
        expression = reader.take_until("an expression", "COMMENT")
        comment = _comment(reader)
        return statements.ColumnSyntax(
            name, statements.ColumnKind.COMPUTED, name.span, expression=expression, comment=comment
        )
    type = reader.take_type(*_AFTER_TYPE)
    nullable, key, virtual, primary, kind = True, None, False, False, statements.ColumnKind.PHYSICAL
    while True:
        if reader.accept_phrase("NOT", "NULL"):
            nullable = False
        elif reader.accept_word("NULL"):
            nullable = True
        elif reader.accept_word("CONSTRAINT"):
            reader.take_name()
        elif reader.accept_phrase("PRIMARY", "KEY"):
            _not_enforced(reader)
            primary = True
        elif reader.accept_word("METADATA"):
            kind = statements.ColumnKind.METADATA
            if reader.accept_word("FROM"):
                text = reader.take_text("the metadata key")
                key = Name(text.text, token_span(text), True)
            virtual = reader.accept_word("VIRTUAL")
        else:
            break
    if reader.at_word("DEFAULT", "GENERATED", "UNIQUE"):
        reader.fail(f"{reader.token.text.upper()} is not supported at a column", "compute it: name AS expression")
    comment = _comment(reader)
    return statements.ColumnSyntax(
        name, kind, name.span, type=type, nullable=nullable, key=key, virtual=virtual, primary=primary, comment=comment
    )


def _comment(reader: StatementReader) -> str | None:
    return reader.take_text("a comment").text if reader.accept_word("COMMENT") else None


def _like(reader: StatementReader) -> statements.LikeSyntax:
    table = reader.take_path("a table's name")
    choices: list[tuple[statements.LikeFeature, statements.LikeChoice]] = []
    if reader.accept_mark("("):
        while not reader.accept_mark(")"):
            choice = statements.LikeChoice(
                reader.take_word([c.value for c in statements.LikeChoice], "INCLUDING, EXCLUDING or OVERWRITING")
            )
            feature = statements.LikeFeature(
                reader.take_word([f.value for f in statements.LikeFeature], "a part of a table like OPTIONS")
            )
            choices.append((feature, choice))
            reader.accept_mark(",")
    return statements.LikeSyntax(table, tuple(choices))
