"""From the text of a script to its statements. What is wrong with one statement does not hide the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from flowrun.core.record import record
from flowrun.errors import ExpressionError, did_you_mean, near_matches
from flowrun.frontend.sql.catalog import DEFAULT_CATALOG, DEFAULT_DATABASE
from flowrun.frontend.sql.grammar.syntax import Name
from flowrun.frontend.sql.grammar.tokens import Token, TokenType, is_mark, is_name, is_quoted, is_word, token_span
from flowrun.frontend.sql.script import statements
from flowrun.frontend.sql.script.ddl_parser import create_table, option_list
from flowrun.frontend.sql.script.statement_reader import StatementReader, split_script
from flowrun.frontend.sql.spans import Span, error_at

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
            reader = StatementReader(text, tokens)
            if _opens_set(reader):
                if in_set:
                    reader.fail("a statement set cannot stand in another", "end the first one with END;", at=tokens[0])
                in_set, explained, opened = True, is_word(tokens[0], "EXPLAIN"), token_span(tokens[0])
                if not reader.token:
                    continue
                start = reader.token.start
            elif in_set and reader.accept_word("END"):
                reader.expect_end()
                in_set = explained = False
                continue
            statement = _statement(reader)
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


def _opens_set(reader: StatementReader) -> bool:
    for words in (
        ("EXECUTE", "STATEMENT", "SET", "BEGIN"),
        ("EXPLAIN", "STATEMENT", "SET", "BEGIN"),
        ("EXPLAIN", "PLAN", "FOR", "STATEMENT", "SET", "BEGIN"),
    ):
        if reader.accept_phrase(*words):
            return True
    if reader.accept_phrase("BEGIN", "STATEMENT", "SET"):
        reader.expect_end()
        return True
    return False


def _created(tokens: tuple[Token, ...]) -> str | None:
    """The name that a broken CREATE statement is about."""
    if not tokens or not near_matches(tokens[0].text, ["CREATE"]):
        return None
    named = next(
        (i for i, t in enumerate(tokens[:6], 1) if is_word(t, "TABLE", "VIEW", "FUNCTION", "CATALOG")), len(tokens)
    )
    if len(tokens) > named + 3 and is_word(tokens[named], "IF") and is_word(tokens[named + 1], "NOT"):
        named += 3
    while len(tokens) > named + 2 and is_mark(tokens[named + 1], "."):
        named += 2
    return tokens[named].text if named < len(tokens) and is_name(tokens[named]) else None


def _statement(reader: StatementReader) -> statements.Statement:
    token = reader.token
    if reader.at_mark("(") or reader.at_word(*_QUERY_WORDS):
        return statements.Select(reader.take_rest("a query"))
    word = token.text.upper() if is_name(token) and not is_quoted(token) else ""
    read = _READERS.get(word)
    if read is None:
        if word in UNSUPPORTED:
            reader.fail(f"{word} is not supported", f"instead: {UNSUPPORTED[word]}")
        known = STATEMENT_WORDS
        hint = (
            did_you_mean(word, near_matches(word, known)) if near_matches(word, known) else "known: " + ", ".join(known)
        )
        reader.fail_expected("a statement", hint)
    reader.advance()
    return read(reader)


# -- CREATE and DROP -----------------------------------------------------------------------------------------------------------


def _create(reader: StatementReader) -> statements.Statement:
    replace = reader.accept_phrase("OR", "REPLACE")
    temporary = reader.accept_word("TEMPORARY")
    reader.accept_word("SYSTEM")
    word = reader.take_word(
        ("TABLE", "VIEW", "FUNCTION", "CATALOG", "DATABASE", "MODEL", "CONNECTION", "MATERIALIZED"),
        "TABLE, VIEW, FUNCTION or CATALOG",
    )
    match word:
        case "TABLE":
            if replace:
                hint = "DROP TABLE IF EXISTS it before"
                reader.fail("CREATE OR REPLACE TABLE is not supported", hint, at=reader.previous)
            return dataclasses.replace(create_table(reader), temporary=temporary)
        case "VIEW":
            return _create_view(reader, replace=replace, temporary=temporary)
        case "FUNCTION":
            return _create_function(reader)
        case "CATALOG":
            return _create_catalog(reader)
        case "DATABASE":
            hint = f"a script's own tables are in {DEFAULT_CATALOG}.{DEFAULT_DATABASE}; make other databases where they are"
        case _:
            hint = "create a TABLE or a VIEW"
    raise reader.error(f"CREATE {word} is not supported", hint, at=reader.previous)


def _create_catalog(reader: StatementReader) -> statements.CreateCatalog:
    if_not_exists = reader.accept_phrase("IF", "NOT", "EXISTS")
    name = reader.take_name("a catalog's name")
    comment = reader.take_text("a comment").text if reader.accept_word("COMMENT") else None
    reader.expect_word("WITH")
    options = option_list(reader)
    reader.expect_end()
    return statements.CreateCatalog(name, options, if_not_exists, comment)


def _create_view(reader: StatementReader, *, replace: bool, temporary: bool) -> statements.CreateView:
    if_not_exists = reader.accept_phrase("IF", "NOT", "EXISTS")
    name = reader.take_path("a view's name")
    columns: list[Name] = []
    if reader.accept_mark("("):
        while not columns or reader.accept_mark(","):
            columns.append(reader.take_name("a column's name"))
            if reader.accept_word("COMMENT"):
                reader.take_text("a comment")
        reader.expect_mark(")")
    if reader.accept_word("COMMENT"):
        reader.take_text("a comment")
    reader.expect_word("AS")
    return statements.CreateView(name, reader.take_rest("a query"), tuple(columns), if_not_exists, replace, temporary)


def _create_function(reader: StatementReader) -> statements.CreateFunction:
    if_not_exists = reader.accept_phrase("IF", "NOT", "EXISTS")
    name = reader.take_path("a function's name")
    reader.expect_word("AS")
    reference = reader.take_text("the function, like 'module.name'")
    language, span = "JAVA", token_span(reference)
    if reader.accept_word("LANGUAGE"):
        span = token_span(reader.token)
        language = reader.take_word(("PYTHON", "JAVA", "SCALA"), "PYTHON")
    while reader.accept_word("USING") or reader.accept_mark(","):
        reader.take_word(("JAR", "ARTIFACT", "FILE"), "JAR")
        reader.take_text("a file")
    reader.expect_end()
    return statements.CreateFunction(name, reference.text, token_span(reference), language, span, if_not_exists)


def _drop(reader: StatementReader) -> statements.Statement:
    reader.accept_word("TEMPORARY")
    reader.accept_word("SYSTEM")
    words = ("TABLE", "VIEW", "FUNCTION", "CATALOG", "DATABASE", "MODEL")
    word = reader.take_word(words, "TABLE, VIEW, FUNCTION or CATALOG")
    if word in ("DATABASE", "MODEL"):
        reader.fail(f"DROP {word} is not supported", "drop TABLEs, VIEWs, FUNCTIONs and CATALOGs", at=reader.previous)
    if_exists = reader.accept_phrase("IF", "EXISTS")
    name = (reader.take_name("a catalog's name"),) if word == "CATALOG" else reader.take_path()
    reader.expect_end()
    return statements.Drop(statements.ObjectKind(word.lower()), name, if_exists)


# -- INSERT and EXPLAIN --------------------------------------------------------------------------------------------------------


def _insert(reader: StatementReader) -> statements.Insert:
    overwrite = reader.accept_word("OVERWRITE")
    if not overwrite:
        reader.expect_word("INTO")
    reader.accept_word("TABLE")
    table = reader.take_path("a table's name")
    hints: list[str] = []
    while reader.at_kind(TokenType.HINT):
        hints.append(reader.advance().text[3:-2])
    partition: list[tuple[Name, object]] = []
    if reader.accept_word("PARTITION"):
        reader.expect_mark("(")
        while not partition or reader.accept_mark(","):
            key = reader.take_name("a partition column")
            reader.expect_mark("=")
            partition.append((key, reader.take_until("a value")))
        reader.expect_mark(")")
    columns: tuple[Name, ...] | None = None
    if reader.at_mark("(") and not _is_query(reader):
        columns = reader.take_names("a column's name")
    if reader.token and not reader.at_mark("(") and not reader.at_word(*_QUERY_WORDS):
        close = near_matches(reader.token.text.upper(), _QUERY_WORDS)
        reader.fail_expected("SELECT or VALUES", f"did you mean {close[0]}?" if close else None)
    query = reader.take_rest("SELECT or VALUES", "ON", "CONFLICT", "DO")
    return statements.Insert(table, query, columns, tuple(partition), tuple(hints), _conflict(reader), overwrite)  # type: ignore[arg-type]


def _conflict(reader: StatementReader) -> statements.ConflictSyntax | None:
    start = reader.token.start
    if not reader.accept_phrase("ON", "CONFLICT", "DO"):
        return None
    word = reader.take_word([a.value for a in statements.ConflictAction], "ERROR, NOTHING or DEDUPLICATE")
    reader.expect_end()
    return statements.ConflictSyntax(statements.ConflictAction(word), reader.since(start))


def _is_query(reader: StatementReader) -> bool:
    ahead = 0
    while is_mark(reader.ahead(ahead), "("):
        ahead += 1
    return is_word(reader.ahead(ahead), *_QUERY_WORDS)


def _explain(reader: StatementReader) -> statements.Explain:
    if not reader.accept_phrase("PLAN", "FOR"):
        while reader.at_word(*_EXPLAIN_DETAILS):
            reader.advance()
            reader.accept_mark(",")
    first = reader.token
    inner = _statement(reader)
    if not isinstance(inner, statements.Insert | statements.Select):
        reader.fail("EXPLAIN is for queries and INSERT", "EXPLAIN SELECT … or EXPLAIN INSERT INTO …", at=first)
    return statements.Explain(inner)


def _execute(reader: StatementReader) -> statements.Statement:
    if reader.at_word("PLAN"):
        reader.fail("EXECUTE PLAN is not supported", "run the script that the plan was made of")
    if reader.at_word("STATEMENT"):
        reader.expect_phrase("STATEMENT", "SET", "BEGIN")
    first = reader.token
    inner = _statement(reader)
    if not isinstance(inner, statements.Insert | statements.Select):
        hint = f"leave out EXECUTE: {first.text.upper()} …"
        reader.fail("EXECUTE is for queries, INSERT and statement sets", hint, at=first)
    return inner


# -- the rest ------------------------------------------------------------------------------------------------------------------


def _set(reader: StatementReader) -> statements.SetOption:
    if not reader.token:
        return statements.SetOption(None)
    key, key_span = _option_key(reader)
    reader.expect_mark("=")
    if reader.at_kind(TokenType.STRING):
        value = reader.advance()
        text, span = value.text, token_span(value)
    else:
        rest = reader.take_rest("a value")
        text, span = rest.text.strip(), rest.span
    reader.expect_end()
    return statements.SetOption(statements.OptionSyntax(key, key_span, text, span))


def _reset(reader: StatementReader) -> statements.ResetOption:
    if not reader.token:
        return statements.ResetOption(None, token_span(reader.previous))
    key, span = _option_key(reader)
    reader.expect_end()
    return statements.ResetOption(key, span)


def _option_key(reader: StatementReader) -> tuple[str, Span]:
    if reader.at_kind(TokenType.STRING):
        key = reader.advance()
        return key.text, token_span(key)
    start = reader.token.start
    if not is_name(reader.token) or is_quoted(reader.token):
        reader.fail_expected("a setting like 'parallelism.default'")
    while reader.token and not reader.at_mark("="):
        reader.advance()
    span = reader.since(start)
    return reader.text[slice(*span)], span


def _describe(reader: StatementReader) -> statements.Statement:
    for word in ("DATABASE", "FUNCTION", "JOB", "MODEL"):
        if reader.at_word(word) and reader.following:
            reader.fail(f"DESCRIBE {word} is not supported", "DESCRIBE a table, view or CATALOG")
    if reader.at_word("CATALOG") and reader.following:
        reader.advance()
        reader.accept_word("EXTENDED")
        catalog = reader.take_name("a catalog's name")
        reader.expect_end()
        return statements.DescribeCatalog(catalog)
    reader.accept_word("EXTENDED")
    name = reader.take_path("a table's name")
    reader.expect_end()
    return statements.Describe(name)


def _show(reader: StatementReader) -> statements.Statement:
    if reader.accept_word("CREATE"):
        word = reader.take_word(("TABLE", "VIEW", "CATALOG"), "TABLE, VIEW or CATALOG")
        kind = statements.ObjectKind(word.lower())
        name = (reader.take_name("a catalog's name"),) if word == "CATALOG" else reader.take_path()
        reader.expect_end()
        return statements.ShowCreate(kind, name)
    if reader.accept_word("COLUMNS"):
        if not reader.accept_word("FROM"):
            reader.expect_word("IN")
        name = reader.take_path("a table's name")
        chosen = _name_filter(reader)
        reader.expect_end()
        return statements.ShowColumns(name, chosen)
    for listing in statements.Listing:
        if reader.accept_phrase(*listing.value.split()):
            scope: tuple[Name, ...] = ()
            if listing in _SCOPED and (reader.accept_word("FROM") or reader.accept_word("IN")):
                scope = _scope(reader, of_catalog=listing is statements.Listing.DATABASES)
            chosen = _name_filter(reader)
            reader.expect_end()
            return statements.Show(listing, chosen, scope)
    known = [item.value for item in statements.Listing]
    known += ["COLUMNS FROM", "CREATE TABLE", "CREATE VIEW", "CREATE CATALOG"]
    hint = did_you_mean(reader.token.text.upper(), known)
    raise reader.error(f"expected what to show, got {reader.shown()}", hint)


def _name_filter(reader: StatementReader) -> statements.NameFilter | None:
    negated = reader.accept_word("NOT")
    any_case = reader.accept_word("ILIKE")
    if not any_case:
        if not negated and not reader.at_word("LIKE"):
            return None
        reader.expect_word("LIKE")
    return statements.NameFilter(reader.take_text("a pattern").text, negated, any_case)


def _scope(reader: StatementReader, *, of_catalog: bool) -> tuple[Name, ...]:
    """What stands behind FROM or IN: a catalog, or a database, perhaps with its catalog."""
    path = reader.take_path("a catalog's name" if of_catalog else "a database's name")
    most = 1 if of_catalog else 2
    if len(path) > most:
        what = "a catalog" if of_catalog else "a database, perhaps behind its catalog"
        reader.fail(f"expected {what}, got '{'.'.join(n.text for n in path)}'", at=reader.previous)
    return path


def _use(reader: StatementReader) -> statements.Use:
    if reader.at_word("MODULES"):
        reader.fail("USE MODULES is not supported", "all functions are built in: leave it out")
    of_catalog = reader.at_word("CATALOG") and bool(reader.following) and not is_mark(reader.following, ".")
    if of_catalog:
        reader.advance()
    path = _scope(reader, of_catalog=of_catalog)
    reader.expect_end()
    return statements.Use(path, of_catalog)


def _add(reader: StatementReader) -> statements.AddJar:
    start = reader.previous.start
    reader.expect_word("JAR")
    reader.take_text("a file")
    reader.expect_end()
    return statements.AddJar(reader.since(start))


_SCOPED = (
    statements.Listing.TABLES,
    statements.Listing.VIEWS,
    statements.Listing.DATABASES,
    statements.Listing.FUNCTIONS,
    statements.Listing.USER_FUNCTIONS,
)
"""What can be listed of a catalog or database."""

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


def name_given(read: statements.ReadStatement | FailedStatement) -> str | None:
    """The name that a statement gives to something."""
    if isinstance(read, FailedStatement):
        return read.creates
    statement = read.statement
    if isinstance(statement, statements.CreateFunction):
        return statement.name[-1].text.upper()
    if isinstance(statement, statements.CreateCatalog):
        return statement.name.text
    return statement.name[-1].text if isinstance(statement, statements.CreateTable | statements.CreateView) else None
