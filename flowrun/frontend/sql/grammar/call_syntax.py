"""Function calls whose arguments are not a plain list: CAST(x AS t), EXTRACT(u FROM x), TRIM(BOTH a FROM b), JSON_VALUE(…) and so on.

Every parser turns the special words into ordinary arguments, so that the binder sees one form: a name and arguments. Time units and
JSON modes become upper-case string literals: `EXTRACT(MINUTE FROM ts)` is `EXTRACT('MINUTE', ts)`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from sqlglot import exp

from flowrun.frontend.sql.grammar.sqlglot_reader import SqlglotReader
from flowrun.frontend.sql.grammar.tokens import WORD, TokenType, is_word, token_span

CallParser = Callable[["CallReader"], exp.Expression]
"""Parses what stands between the parentheses of a call."""

_STRING_ARRAY = re.compile(r"\s*ARRAY\s*<\s*(STRING|VARCHAR(\s*\(\s*\d+\s*\))?)\s*(NOT\s+NULL\s*)?>\s*", re.IGNORECASE)
_JSON_MODES = ("NULL", "ERROR", "DEFAULT")


class CallReader(SqlglotReader):
    """Reads what only calls have: special words, types, conditions."""

    def at_close(self) -> bool:
        """Whether the call ends here."""
        return not self.token or self.at_mark(")")

    def any_word(self, what: str) -> exp.Literal:
        """A word or string as an upper-case literal argument."""
        token = self.token
        if not token or (token.token_type is not TokenType.STRING and not WORD.fullmatch(token.text)):
            self.fail_expected(f"{what}")
        self.advance()
        literal = exp.Literal.string(token.text.upper())
        literal.meta["span"] = token_span(token)
        return literal

    def on_condition(self, conditions: Sequence[str]) -> str:
        """The word after ON: EMPTY, ERROR or NULL."""
        if not self.accept_word("ON") or not self.accept_word(*conditions):
            self.fail_expected(f"ON {' or ON '.join(conditions)}")
        return str(self.previous.text.upper())

    def type_text(self, stop: Sequence[str]) -> exp.Var:
        """The text of a type, up to the closing parenthesis of the call or one of the words in `stop` outside brackets."""
        start = self.token
        depth = 0
        while self.token:
            if depth == 0 and (self.at_mark(")") or self.at_word(*stop)):
                break
            depth += self.at_mark("(", "<") - self.at_mark(")", ">")
            self.advance()
        if not start or start is self.token:
            self.fail_expected("a type")
        end = self.previous.end + 1
        node = exp.Var(this=self.text[start.start : end])
        node.meta["span"] = (start.start, end)
        return node


def call(name: str, *arguments: exp.Expression) -> exp.Anonymous:
    """A call node."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def word(text: str) -> exp.Literal:
    """A keyword as an argument."""
    return exp.Literal.string(text.upper())


def _cast(parser: CallReader, node: type[exp.Cast]) -> exp.Expression:
    operand = parser.operand()
    if not parser.accept_word("AS"):
        parser.fail_expected("AS and a type")
    return node(this=operand, to=parser.type_text(stop=()))


def _extract(parser: CallReader) -> exp.Expression:
    unit = parser.any_word("a time unit like MINUTE")
    parser.expect_word("FROM")
    return call("EXTRACT", unit, parser.operand())


def _rounding(name: str) -> CallParser:
    def parse(parser: CallReader) -> exp.Expression:
        arguments = parser.arguments()
        if parser.accept_word("TO"):
            arguments.append(parser.any_word("a time unit like MINUTE"))
        return call(name, *arguments)

    return parse


def _trim(parser: CallReader) -> exp.Expression:
    side = "BOTH"
    explicit = parser.accept_word("BOTH", "LEADING", "TRAILING")
    if explicit:
        side = parser.previous.text.upper()
    name = {"BOTH": "TRIM", "LEADING": "LTRIM", "TRAILING": "RTRIM"}[side]
    if explicit and parser.accept_word("FROM"):
        return call(name, parser.operand())
    first = parser.operand()
    if parser.accept_word("FROM"):
        return call(name, parser.operand(), first)
    if explicit:
        parser.fail_expected("FROM")
    rest = parser.arguments() if parser.accept_mark(",") else []
    return call(name, first, *rest)


def _position(parser: CallReader) -> exp.Expression:
    needle = parser.arithmetic()
    if parser.accept_mark(","):
        return call("POSITION", needle, *parser.arguments())
    parser.expect_word("IN")
    arguments = [needle, parser.operand()]
    if parser.accept_word("FROM"):
        arguments.append(parser.operand())
    return call("POSITION", *arguments)


def _overlay(parser: CallReader) -> exp.Expression:
    first = parser.operand()
    if parser.accept_mark(","):
        return call("OVERLAY", first, *parser.arguments())
    parser.expect_word("PLACING")
    arguments = [first, parser.operand()]
    parser.expect_word("FROM")
    arguments.append(parser.operand())
    if parser.accept_word("FOR"):
        arguments.append(parser.operand())
    return call("OVERLAY", *arguments)


def _substring(parser: CallReader) -> exp.Expression:
    first = parser.operand()
    if parser.accept_mark(","):
        return call("SUBSTRING", first, *parser.arguments())
    if not parser.accept_word("FROM"):
        parser.fail(f"SUBSTRING needs a start: expected ',' or FROM, got {parser.shown()}")
    arguments = [first, parser.operand()]
    if parser.accept_word("FOR"):
        arguments.append(parser.operand())
    return call("SUBSTRING", *arguments)


def _unit_first(name: str) -> CallParser:
    def parse(parser: CallReader) -> exp.Expression:
        unit = parser.any_word("a time unit like SECOND")
        if unit.this.startswith("SQL_TSI_"):
            unit = word(unit.this.removeprefix("SQL_TSI_"))
        parser.expect_mark(",")
        return call(name, unit, *parser.arguments())

    return parse


def _json_path(parser: CallReader) -> tuple[exp.Expression, exp.Expression]:
    document = parser.operand()
    parser.expect_mark(",", "a JSON path")
    return document, parser.operand()


def _json_value(parser: CallReader) -> exp.Expression:
    document, path = _json_path(parser)
    returning = parser.type_text(stop=_JSON_MODES) if parser.accept_word("RETURNING") else None
    modes: dict[str, tuple[exp.Expression, exp.Expression]] = {
        "EMPTY": (word("NULL"), exp.Null()),
        "ERROR": (word("NULL"), exp.Null()),
    }
    while parser.accept_word(*_JSON_MODES):
        mode = parser.previous.text.upper()
        default = _as_text(parser.operand()) if mode == "DEFAULT" else exp.Null()
        modes[parser.on_condition(("EMPTY", "ERROR"))] = (word(mode), default)
    result: exp.Expression = call("JSON_VALUE", document, path, *modes["EMPTY"], *modes["ERROR"])
    if returning is None:
        return result
    strict = modes["ERROR"][0].this == "ERROR"
    return exp.Cast(this=result, to=returning) if strict else exp.TryCast(this=result, to=returning)


def _as_text(value: exp.Expression) -> exp.Expression:
    """The default of JSON_VALUE as the text that is converted to the type after RETURNING; truth values as JSON writes them."""
    if isinstance(value, exp.Boolean):
        return exp.Literal.string("true" if value.this else "false")
    if isinstance(value, exp.Null) or value.is_string:
        return value
    if isinstance(value, exp.Literal) and set(value.this) <= set("0123456789."):
        return exp.Literal.string(value.this)
    node = exp.Cast(this=value, to=exp.Var(this="STRING"))
    node.meta["span"] = value.meta.get("span", (0, 0))
    return node


def _json_query(parser: CallReader) -> exp.Expression:
    document, path = _json_path(parser)
    returning = None
    if parser.accept_word("RETURNING"):
        returning = parser.type_text(stop=("WITH", "WITHOUT", "NULL", "ERROR", "EMPTY"))
    wrapper = "WITHOUT"
    if parser.accept_word("WITH", "WITHOUT"):
        if parser.previous.text.upper() == "WITH":
            wrapper = "UNCONDITIONAL"
            if parser.accept_word("CONDITIONAL", "UNCONDITIONAL"):
                wrapper = parser.previous.text.upper()
        parser.accept_word("ARRAY")
        parser.expect_word("WRAPPER")
    modes = {"EMPTY": "NULL", "ERROR": "NULL"}
    while parser.accept_word("NULL", "ERROR", "EMPTY"):
        mode = parser.previous.text.upper()
        if mode == "EMPTY":
            if not parser.accept_word("ARRAY", "OBJECT"):
                parser.fail_expected("ARRAY or OBJECT")
            mode = f"EMPTY {parser.previous.text.upper()}"
        modes[parser.on_condition(("EMPTY", "ERROR"))] = mode
    result = call("JSON_QUERY", document, path, word(wrapper), word(modes["EMPTY"]), word(modes["ERROR"]))
    if returning is None:
        return result
    if _STRING_ARRAY.fullmatch(str(returning.this)):
        return call("JSON_ELEMENTS", result)
    return exp.TryCast(this=result, to=returning)


def _json_exists(parser: CallReader) -> exp.Expression:
    document, path = _json_path(parser)
    mode = "FALSE"
    if parser.accept_word("TRUE", "FALSE", "UNKNOWN", "ERROR"):
        mode = parser.previous.text.upper()
        parser.on_condition(("ERROR",))
    return call("JSON_EXISTS", document, path, word(mode))


def _on_null(parser: CallReader, default: str) -> exp.Literal:
    if parser.accept_word("NULL", "ABSENT"):
        mode = parser.previous.text
        parser.on_condition(("NULL",))
        return word(mode)
    return word(default)


_WRITES_JSON = ("JSON_OBJECT", "JSON_ARRAY", "JSON")


def _marks(values: Sequence[exp.Expression]) -> exp.Literal:
    """`j` for each value that is JSON itself, `-` for others, which are turned into JSON."""
    nested = (isinstance(v, exp.Anonymous) and str(v.this).upper() in _WRITES_JSON for v in values)
    return exp.Literal.string("".join("j" if n else "-" for n in nested))


def _json_object(name: str) -> CallParser:
    def parse(parser: CallReader) -> exp.Expression:
        pairs: list[exp.Expression] = []
        while not parser.at_close() and not (parser.at_word("NULL", "ABSENT") and is_word(parser.following, "ON")):
            parser.accept_word("KEY")
            pairs.append(parser.operand())
            if not parser.accept_word("VALUE") and not parser.accept_mark(":"):
                parser.fail_expected("VALUE")
            pairs.append(parser.operand())
            if not parser.accept_mark(","):
                break
        return call(name, _on_null(parser, "NULL"), _marks(pairs[1::2]), *pairs)

    return parse


def _json_array(name: str) -> CallParser:
    def parse(parser: CallReader) -> exp.Expression:
        items: list[exp.Expression] = []
        while not parser.at_close() and not (parser.at_word("NULL", "ABSENT") and is_word(parser.following, "ON")):
            items.append(parser.operand())
            if not parser.accept_mark(","):
                break
        return call(name, _on_null(parser, "ABSENT"), _marks(items), *items)

    return parse


def _json_array_aggregate(parser: CallReader) -> exp.Expression:
    item = parser.operand()
    return call("JSON_ARRAYAGG", _on_null(parser, "ABSENT"), _marks([item]), item)


def _json_object_aggregate(parser: CallReader) -> exp.Expression:
    parser.accept_word("KEY")
    key = parser.operand()
    if not parser.accept_word("VALUE") and not parser.accept_mark(":"):
        parser.fail_expected("VALUE")
    value = parser.operand()
    return call("JSON_OBJECTAGG", _on_null(parser, "NULL"), _marks([value]), key, value)


CALL_SYNTAX: dict[str, CallParser] = {
    "CAST": lambda parser: _cast(parser, exp.Cast),
    "TRY_CAST": lambda parser: _cast(parser, exp.TryCast),
    "EXTRACT": _extract,
    "FLOOR": _rounding("FLOOR"),
    "CEIL": _rounding("CEIL"),
    "CEILING": _rounding("CEIL"),
    "TRIM": _trim,
    "POSITION": _position,
    "OVERLAY": _overlay,
    "SUBSTRING": _substring,
    "TIMESTAMPADD": _unit_first("TIMESTAMPADD"),
    "TIMESTAMPDIFF": _unit_first("TIMESTAMPDIFF"),
    "JSON_VALUE": _json_value,
    "JSON_QUERY": _json_query,
    "JSON_EXISTS": _json_exists,
    "JSON_OBJECT": _json_object("JSON_OBJECT"),
    "JSON_ARRAY": _json_array("JSON_ARRAY"),
    "JSON_ARRAYAGG": _json_array_aggregate,
    "JSON_OBJECTAGG": _json_object_aggregate,
}
"""Upper-case function name → parser of its arguments; every other function takes a plain list."""
