"""Calls of functions by catalog and database: `default_catalog.default_database.f(x)`."""

from __future__ import annotations

from flowrun.frontend.sql.catalog import DEFAULT_CATALOG, DEFAULT_DATABASE
from flowrun.frontend.sql.grammar.token_reader import TokenReader
from flowrun.frontend.sql.grammar.tokens import TokenType, is_mark
from flowrun.frontend.sql.spans import FlinkSyntaxError

_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)


def names_before_call(parser: TokenReader) -> int:
    """How many names, joined by dots, stand from the current token on before a `(`; 0 if something else comes."""
    names = 0
    while parser.ahead(2 * names).token_type in _NAMES:
        after = parser.ahead(2 * names + 1)
        names += 1
        if not is_mark(after, "."):
            return names if is_mark(after, "(") else 0
    return 0


def skip_qualifiers(parser: TokenReader) -> None:
    """Step over the catalog and database of the function that is called here.

    Raises:
        FlinkSyntaxError: they are not the only ones there are.
    """
    first = parser.token
    qualifiers = []
    for _ in range(names_before_call(parser) - 1):
        qualifiers.append(parser.token.text)
        parser.advance(2)
    if qualifiers in ([], [DEFAULT_DATABASE], [DEFAULT_CATALOG, DEFAULT_DATABASE]):
        return
    name = parser.token.text
    raise FlinkSyntaxError(
        f"the function '{'.'.join([*qualifiers, name])}' is in a catalog or database that does not exist",
        first.start,
        parser.token.end + 1 - first.start,
        f"all functions of a script are in {DEFAULT_CATALOG}.{DEFAULT_DATABASE}: write {name}(…)",
    )
