"""From the text of a script to its statements. What is wrong with one statement does not hide the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from flowrun.core.record import record
from flowrun.errors import ExpressionError, did_you_mean, near_matches
from flowrun.frontend.sql.catalog import DEFAULT_CATALOG, DEFAULT_DATABASE
from flowrun.frontend.sql.grammar.syntax import Name
from flowrun.frontend.sql.grammar.tokens import Token, TokenType, is_mark, is_name, is_quoted, is_word, token_span
from flowrun.frontend.sql.places import Span, error_at
from flowrun.frontend.sql.script import statements
from flowrun.frontend.sql.script.ddl_parser import create_table
from flowrun.frontend.sql.script.statement_reader import StatementReader, split_script

_QUERY_WORDS = ("SELECT", "WITH", "VALUES", "TABLE")
_EXPLAIN_DETAILS = ("ESTIMATED_COST", "CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE")
UNSUPPORTED = {
    "ALTER": "change the CREATE statement itself: a script declares everything anew",
    "ANALYZE": "flowrun plans without statistics: leave it out",
    "CALL": "flowrun has no stored procedures",
    "COMPILE": "run the script itself; `flowrun explain` shows its plan",
    "DELETE": "write rows with INSERT; deletes come from updating queries",
    "LOAD": "everything is built in: leave it out",
    "MERGE": "a join written with INSERT INTO a table with a PRIMARY KEY",
    "REMOVE": "no jars are used: leave it out",
    "REPLACE": "CREATE TABLE … AS SELECT",
    "STOP": "flowrun stop, from another terminal",
    "TRUNCATE": "remove the table's files",
    "UNLOAD": "everything is built in: leave it out",
    "UPDATE": "write rows with INSERT INTO a table with a PRIMARY KEY",
}


@record
class FailedStatement:
    """A statement that does not parse; `creates` is the name that it would have given to something."""

    error: ExpressionError
    span: Span
    creates: str | None


def read_statements(text: str) -> Iterator[statements.ReadStatement | FailedStatement]:
    """The statements of a script, in order; those between BEGIN and END of a statement set are marked."""
    in_set = explained = False
    opened: Span = (0, 0)
    for cut in split_script(text):
        tokens, (start, end) = cut.tokens, cut.span
        try:
            if cut.error is not None:
                raise cut.error
            cursor = StatementReader(text, tokens)
            if _opens_set(cursor):
                if in_set:
                    cursor.fail("a statement set cannot stand in another", "end the first one with END;", at=tokens[0])
                in_set, explained, opened = True, is_word(tokens[0], "EXPLAIN"), token_span(tokens[0])
                if not cursor.token:
                    continue
                start = cursor.token.start
            elif in_set and cursor.accept_word("END"):
                cursor.expect_end()
                in_set = explained = False
                continue
            statement = _statement(cursor)
            if in_set and not isinstance(statement, statements.Insert):
                raise error_at(
                    "only INSERT INTO can stand in a statement set", (start, end), "end the set with END; before it"
                )
            yield statements.ReadStatement(statement, (start, end), in_set, explained)
        except ExpressionError as error:
            yield FailedStatement(error, (start, end), _created(tokens))
    if in_set:
        unclosed = error_at("the statement set has no END", opened, "write END;")
        yield FailedStatement(unclosed, opened, None)


def _opens_set(cursor: StatementReader) -> bool:
    for words in (
        ("EXECUTE", "STATEMENT", "SET", "BEGIN"),
        ("EXPLAIN", "STATEMENT", "SET", "BEGIN"),
        ("EXPLAIN", "PLAN", "FOR", "STATEMENT", "SET", "BEGIN"),
    ):
        if cursor.accept_phrase(*words):
            return True
    if cursor.accept_phrase("BEGIN", "STATEMENT", "SET"):
        cursor.expect_end()
        return True
    return False


def _created(tokens: tuple[Token, ...]) -> str | None:
    """The name that a broken CREATE statement is about."""
    if not tokens or not near_matches(tokens[0].text, ["CREATE"]):
        return None
    for place, token in enumerate(tokens[:6]):
        if is_word(token, "TABLE", "VIEW", "FUNCTION"):
            rest = list(tokens[place + 1 :])
            if len(rest) > 3 and is_word(rest[0], "IF") and is_word(rest[1], "NOT"):
                rest = rest[3:]
            while len(rest) > 2 and is_mark(rest[1], "."):
                rest = rest[2:]
            return rest[0].text if rest and is_name(rest[0]) else None
    return None


def _statement(cursor: StatementReader) -> statements.Statement:
    token = cursor.token
    if cursor.at_mark("(") or cursor.at_word(*_QUERY_WORDS):
        return statements.Select(cursor.take_rest("a query"))
    word = token.text.upper() if is_name(token) and not is_quoted(token) else ""
    read = _READERS.get(word)
    if read is None:
        if word in UNSUPPORTED:
            cursor.fail(f"{word} is not supported", f"instead: {UNSUPPORTED[word]}")
        known = STATEMENT_WORDS
        hint = (
            did_you_mean(word, near_matches(word, known)) if near_matches(word, known) else "known: " + ", ".join(known)
        )
        cursor.fail_expected("a statement", hint)
    cursor.advance()
    return read(cursor)


# -- CREATE and DROP -----------------------------------------------------------------------------------------------------------


def _create(cursor: StatementReader) -> statements.Statement:
    replace = cursor.accept_phrase("OR", "REPLACE")
    cursor.accept_word("TEMPORARY")
    cursor.accept_word("SYSTEM")
    word = cursor.take_word(
        ("TABLE", "VIEW", "FUNCTION", "CATALOG", "DATABASE", "MODEL", "CONNECTION", "MATERIALIZED"),
        "TABLE, VIEW or FUNCTION",
    )
    match word:
        case "TABLE":
            if replace:
                hint = "DROP TABLE IF EXISTS it before"
                cursor.fail("CREATE OR REPLACE TABLE is not supported", hint, at=cursor.previous)
            return create_table(cursor)
        case "VIEW":
            return _create_view(cursor, replace)
        case "FUNCTION":
            return _create_function(cursor)
        case "CATALOG" | "DATABASE":
            hint = f"all tables of a script are in {DEFAULT_CATALOG}.{DEFAULT_DATABASE}: create them there"
        case _:
            hint = "create a TABLE or a VIEW"
    raise cursor.error(f"CREATE {word} is not supported", hint, at=cursor.previous)


def _create_view(cursor: StatementReader, replace: bool) -> statements.CreateView:
    if_not_exists = cursor.accept_phrase("IF", "NOT", "EXISTS")
    name = cursor.take_path("a view's name")
    columns: list[Name] = []
    if cursor.accept_mark("("):
        while not columns or cursor.accept_mark(","):
            columns.append(cursor.take_name("a column's name"))
            if cursor.accept_word("COMMENT"):
                cursor.take_text("a comment")
        cursor.expect_mark(")")
    if cursor.accept_word("COMMENT"):
        cursor.take_text("a comment")
    cursor.expect_word("AS")
    return statements.CreateView(name, cursor.take_rest("a query"), tuple(columns), if_not_exists, replace)


def _create_function(cursor: StatementReader) -> statements.CreateFunction:
    if_not_exists = cursor.accept_phrase("IF", "NOT", "EXISTS")
    name = cursor.take_path("a function's name")
    cursor.expect_word("AS")
    reference = cursor.take_text("the function, like 'module.name'")
    language, span = "JAVA", token_span(reference)
    if cursor.accept_word("LANGUAGE"):
        span = token_span(cursor.token)
        language = cursor.take_word(("PYTHON", "JAVA", "SCALA"), "PYTHON")
    while cursor.accept_word("USING") or cursor.accept_mark(","):
        cursor.take_word(("JAR", "ARTIFACT", "FILE"), "JAR")
        cursor.take_text("a file")
    cursor.expect_end()
    return statements.CreateFunction(name, reference.text, token_span(reference), language, span, if_not_exists)


def _drop(cursor: StatementReader) -> statements.Statement:
    cursor.accept_word("TEMPORARY")
    cursor.accept_word("SYSTEM")
    word = cursor.take_word(("TABLE", "VIEW", "FUNCTION", "CATALOG", "DATABASE", "MODEL"), "TABLE, VIEW or FUNCTION")
    if word in ("CATALOG", "DATABASE", "MODEL"):
        cursor.fail(f"DROP {word} is not supported", "drop TABLEs, VIEWs and FUNCTIONs", at=cursor.previous)
    if_exists = cursor.accept_phrase("IF", "EXISTS")
    name = cursor.take_path()
    cursor.expect_end()
    return statements.Drop(statements.ObjectKind(word.lower()), name, if_exists)


# -- INSERT and EXPLAIN --------------------------------------------------------------------------------------------------------


def _insert(cursor: StatementReader) -> statements.Insert:
    overwrite = cursor.accept_word("OVERWRITE")
    if not overwrite:
        cursor.expect_word("INTO")
    cursor.accept_word("TABLE")
    table = cursor.take_path("a table's name")
    hints: list[str] = []
    while cursor.at_kind(TokenType.HINT):
        hints.append(cursor.advance().text[3:-2])
    partition: list[tuple[Name, object]] = []
    if cursor.accept_word("PARTITION"):
        cursor.expect_mark("(")
        while not partition or cursor.accept_mark(","):
            key = cursor.take_name("a partition column")
            cursor.expect_mark("=")
            partition.append((key, cursor.take_until("a value")))
        cursor.expect_mark(")")
    columns: tuple[Name, ...] | None = None
    if cursor.at_mark("(") and not _is_query(cursor):
        columns = cursor.take_names("a column's name")
    if cursor.token and not cursor.at_mark("(") and not cursor.at_word(*_QUERY_WORDS):
        close = near_matches(cursor.token.text.upper(), _QUERY_WORDS)
        cursor.fail_expected("SELECT or VALUES", f"did you mean {close[0]}?" if close else None)
    query = cursor.take_rest("SELECT or VALUES", "ON", "CONFLICT", "DO")
    return statements.Insert(table, query, columns, tuple(partition), tuple(hints), _conflict(cursor), overwrite)  # type: ignore[arg-type]


def _conflict(cursor: StatementReader) -> statements.ConflictSyntax | None:
    start = cursor.token.start
    if not cursor.accept_phrase("ON", "CONFLICT", "DO"):
        return None
    word = cursor.take_word([a.value for a in statements.ConflictAction], "ERROR, NOTHING or DEDUPLICATE")
    cursor.expect_end()
    return statements.ConflictSyntax(statements.ConflictAction(word), cursor.since(start))


def _is_query(cursor: StatementReader) -> bool:
    ahead = 0
    while is_mark(cursor.ahead(ahead), "("):
        ahead += 1
    return is_word(cursor.ahead(ahead), *_QUERY_WORDS)


def _explain(cursor: StatementReader) -> statements.Explain:
    if not cursor.accept_phrase("PLAN", "FOR"):
        while cursor.at_word(*_EXPLAIN_DETAILS):
            cursor.advance()
            cursor.accept_mark(",")
    first = cursor.token
    inner = _statement(cursor)
    if not isinstance(inner, statements.Insert | statements.Select):
        cursor.fail("EXPLAIN is for queries and INSERT", "EXPLAIN SELECT … or EXPLAIN INSERT INTO …", at=first)
    return statements.Explain(inner)


def _execute(cursor: StatementReader) -> statements.Statement:
    if cursor.at_word("PLAN"):
        cursor.fail("EXECUTE PLAN is not supported", "run the script that the plan was made of")
    if cursor.at_word("STATEMENT"):
        cursor.expect_phrase("STATEMENT", "SET", "BEGIN")
    first = cursor.token
    inner = _statement(cursor)
    if not isinstance(inner, statements.Insert | statements.Select):
        hint = f"leave out EXECUTE: {first.text.upper()} …"
        cursor.fail("EXECUTE is for queries, INSERT and statement sets", hint, at=first)
    return inner


# -- the rest ------------------------------------------------------------------------------------------------------------------


def _set(cursor: StatementReader) -> statements.SetOption:
    if not cursor.token:
        return statements.SetOption(None)
    key, key_span = _option_key(cursor)
    cursor.expect_mark("=")
    if cursor.at_kind(TokenType.STRING):
        value = cursor.advance()
        text, span = value.text, token_span(value)
    else:
        rest = cursor.take_rest("a value")
        text, span = rest.text.strip(), rest.span
    cursor.expect_end()
    return statements.SetOption(statements.OptionSyntax(key, key_span, text, span))


def _reset(cursor: StatementReader) -> statements.ResetOption:
    if not cursor.token:
        return statements.ResetOption(None, token_span(cursor.previous))
    key, span = _option_key(cursor)
    cursor.expect_end()
    return statements.ResetOption(key, span)


def _option_key(cursor: StatementReader) -> tuple[str, Span]:
    if cursor.at_kind(TokenType.STRING):
        key = cursor.advance()
        return key.text, token_span(key)
    start = cursor.token.start
    if not is_name(cursor.token) or is_quoted(cursor.token):
        cursor.fail_expected("a setting like 'parallelism.default'")
    while cursor.token and not cursor.at_mark("="):
        cursor.advance()
    span = cursor.since(start)
    return cursor.text[slice(*span)], span


def _describe(cursor: StatementReader) -> statements.Describe:
    for word in ("CATALOG", "DATABASE", "FUNCTION", "JOB", "MODEL"):
        if cursor.at_word(word) and cursor.following:
            cursor.fail(f"DESCRIBE {word} is not supported", "DESCRIBE a table or view")
    cursor.accept_word("EXTENDED")
    name = cursor.take_path("a table's name")
    cursor.expect_end()
    return statements.Describe(name)


def _show(cursor: StatementReader) -> statements.Statement:
    if cursor.accept_word("CREATE"):
        kind = statements.ObjectKind(cursor.take_word(("TABLE", "VIEW"), "TABLE or VIEW").lower())
        name = cursor.take_path()
        cursor.expect_end()
        return statements.ShowCreate(kind, name)
    if cursor.accept_word("COLUMNS"):
        if not cursor.accept_word("FROM"):
            cursor.expect_word("IN")
        name = cursor.take_path("a table's name")
        chosen = _name_filter(cursor)
        cursor.expect_end()
        return statements.ShowColumns(name, chosen)
    for listing in statements.Listing:
        if cursor.accept_phrase(*listing.value.split()):
            if cursor.accept_word("FROM") or cursor.accept_word("IN"):
                _only_database(cursor, cursor.take_path(), catalog=listing is statements.Listing.DATABASES)
            chosen = _name_filter(cursor)
            cursor.expect_end()
            return statements.Show(listing, chosen)
    known = [item.value for item in statements.Listing] + ["COLUMNS FROM", "CREATE TABLE", "CREATE VIEW"]
    hint = did_you_mean(cursor.token.text.upper(), known)
    raise cursor.error(f"expected what to show, got {cursor.shown()}", hint)


def _name_filter(cursor: StatementReader) -> statements.NameFilter | None:
    negated = cursor.accept_word("NOT")
    any_case = cursor.accept_word("ILIKE")
    if not any_case:
        if not negated and not cursor.at_word("LIKE"):
            return None
        cursor.expect_word("LIKE")
    return statements.NameFilter(cursor.take_text("a pattern").text, negated, any_case)


def _use(cursor: StatementReader) -> statements.UseDefault:
    if cursor.at_word("MODULES"):
        cursor.fail("USE MODULES is not supported", "all functions are built in: leave it out")
    catalog = cursor.accept_word("CATALOG")
    path = cursor.take_path()
    cursor.expect_end()
    _only_database(cursor, path, catalog=catalog)
    return statements.UseDefault()


def _only_database(cursor: StatementReader, path: tuple[Name, ...], *, catalog: bool) -> None:
    """Fail if a path is not that of the only catalog, or database, there is."""
    names = [p.text for p in path]
    allowed = [[DEFAULT_CATALOG]] if catalog else [[DEFAULT_DATABASE], [DEFAULT_CATALOG, DEFAULT_DATABASE]]
    if names not in allowed:
        what = "catalog" if catalog else "database"
        hint = f"all tables of a script are in {DEFAULT_CATALOG}.{DEFAULT_DATABASE}: leave the statement out"
        message = f"there is no {what} '{'.'.join(names)}': flowrun keeps no catalogs"
        cursor.fail(message, hint, at=cursor.previous)


def _add(cursor: StatementReader) -> statements.AddJar:
    start = cursor.previous.start
    cursor.expect_word("JAR")
    cursor.take_text("a file")
    cursor.expect_end()
    return statements.AddJar(cursor.since(start))


_READERS: dict[str, Callable[[StatementReader], statements.Statement]] = {
    "ADD": _add,
    "CREATE": _create,
    "DESC": _describe,
    "DESCRIBE": _describe,
    "DROP": _drop,
    "EXECUTE": _execute,
    "EXPLAIN": _explain,
    "INSERT": _insert,
    "RESET": _reset,
    "SET": _set,
    "SHOW": _show,
    "USE": _use,
}
STATEMENT_WORDS = (*_READERS, *_QUERY_WORDS)
"""The words that statements begin with."""
