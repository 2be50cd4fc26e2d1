"""Calls of functions by catalog and database: `default_catalog.default_database.f(x)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot.tokenizer_core import TokenType

from flowrun.frontend.sql.catalog import DEFAULT_CATALOG, DEFAULT_DATABASE
from flowrun.frontend.sql.places import FlinkSyntaxError

if TYPE_CHECKING:
    from flowrun.frontend.sql.grammar.dialect import FlinkParser

_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)


def names_before_call(parser: FlinkParser) -> int:
    """How many names, joined by dots, stand from the current token on before a `(`; 0 if something else comes."""
    tokens, place, names = parser._tokens, parser._index, 0
    while place + 1 < len(tokens) and tokens[place].token_type in _NAMES:
        names += 1
        after = tokens[place + 1].token_type
        if after is not TokenType.DOT:
            return names if after is TokenType.L_PAREN else 0
        place += 2
    return 0


def skip_qualifiers(parser: FlinkParser) -> None:
    """Step over the catalog and database of the function that is called here.

    Raises:
        FlinkSyntaxError: they are not the only ones there are.
    """
    first = parser._curr
    qualifiers = []
    for _ in range(names_before_call(parser) - 1):
        qualifiers.append(parser._curr.text)
        parser._advance(2)
    if qualifiers in ([], [DEFAULT_DATABASE], [DEFAULT_CATALOG, DEFAULT_DATABASE]):
        return
    name = parser._curr.text
    raise FlinkSyntaxError(
        f"the function '{'.'.join([*qualifiers, name])}' is in a catalog or database that does not exist",
        first.start,
        parser._curr.end + 1 - first.start,
        f"all functions of a script are in {DEFAULT_CATALOG}.{DEFAULT_DATABASE}: write {name}(…)",
    )
