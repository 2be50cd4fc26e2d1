# ruff: noqa: ARG001 - texts share one signature
r"""JSON functions that read documents, as Spark SQL text of exactly the same value.

Documents become Spark's VARIANT, whose parser is as strict as flowrun's, but for two things. It ignores what follows the first value:
the document is therefore parsed as the only element of an array, and once more as a member if it could end that array itself. And it
keeps no digits of fractions: where they are shown, the same path or the same tokens are read from the document with each number put
into quotes. Paths that are not constant, that match several values (wildcards, filters …), or that count from the end are hosted.
"""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.core.record import record
from flowrun.core.types import DataType
from flowrun.functions.json.path import JsonPath, compile_path
from flowrun.functions.spark_text import let, quote_text, string_literal

_MAY_END_ARRAY = quote_text(r"\A\s*[^\s\[{]|[\]}]\s*\]")
r"""Only where a scalar is followed by `]` somewhere, or an object or array at once, may a document end the array around it."""
_SPACES = quote_text(" \t\r\n")
_NUMBERS = quote_text(r'\G([^-"0-9]*+(?:"(?:[^"\\]++|\\.)*+"[^-"0-9]*+)*+)(-?[0-9][-+.0-9eE]*+)')
_TOKENS = quote_text(r'"(?:[^"\\]++|\\.)*+"|-?[0-9][-+.0-9eE]*+|[^-"0-9]++')
_HAS_FRACTIONS = quote_text(r"[0-9][.eE]|[0-9]{19}")
_HAS_NUMBERS = quote_text(r'(?:\A|[\[:,])(?:-?[0-9]|"-?Infinity")')
_GREATEST_INDEX = 2**31 - 1
_ROOT = "'$[0]'"


@record
class _Document:
    """A document and, inside of its lambda, the array around it.

    Attributes:
        text: Spark SQL of the JSON text; short, for it is repeated.
    """

    text: str

    def read(self, body: str) -> str:
        """The value of `body`, which may use `$json`, an array of only the document; NULL if that is no JSON."""
        return f"get(transform({self.whole}, `$json` -> {body}), 0)"

    @property
    def whole(self) -> str:
        """An array of the array of only the document; empty if that is no JSON."""
        alone = "try_variant_get(`$json`, '$[1]', 'variant') IS NULL"
        member = f"try_parse_json(concat('{{\"\":', {self.text}, '}}')) IS NOT NULL"
        ends = f"NOT contains({self.text}, ']') OR NOT {self.text} RLIKE {_MAY_END_ARRAY} OR {member}"
        given = f"`$json` IS NOT NULL AND trim(BOTH {_SPACES} FROM {self.text}) <> ''"
        return f"filter(array(try_parse_json({self._array})), `$json` -> {given} AND {alone} AND ({ends}))"

    @property
    def _array(self) -> str:
        return f"concat('[', {self.text}, ']')"

    @property
    def quoted(self) -> str:
        """The same array with each number as text of its digits."""
        return f"try_parse_json(regexp_replace({self._array}, {_NUMBERS}, '$1\"$2\"'))"

    def json(self, path: str) -> str:
        """What is at a path as JSON without spaces, members sorted; inside of `read`."""
        exact = _exact_json("`$plain`", f"to_json({_at(self.quoted, path)})")
        fractions = f"`$plain` RLIKE {_HAS_NUMBERS} AND {self.text} RLIKE {_HAS_FRACTIONS}"
        return let(
            "$plain", f"to_json({_at('`$json`', path)})", f"CASE WHEN {fractions} THEN {exact} ELSE `$plain` END"
        )

    def scalar(self, path: str) -> str:
        """The scalar at a path as text, NULL of all else; inside of `read`."""
        shown = f"try_variant_get(`$json`, {path}, 'string')"
        digits = _number_text(f"try_variant_get({self.quoted}, {path}, 'string')")
        kind = let("$kind", _kind(_at("`$json`", path)), _BY_KIND.format(digits))
        return let("$shown", shown, f"CASE WHEN left(`$shown`, 1) {_NO_PLAIN_TEXT} THEN {kind} ELSE `$shown` END")


_NO_PLAIN_TEXT = "IN ('{', '[', 'I', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9')"
"""First characters of objects, arrays and numbers; infinity is what 1e400 becomes."""
_BY_KIND = "CASE WHEN `$kind` IN ('DE', 'DO') THEN {0} WHEN `$kind` NOT IN ('OB', 'AR') THEN `$shown` END"


def _at(document: str, path: str) -> str:
    return f"try_variant_get({document}, {path}, 'variant')"


def _kind(variant: str) -> str:
    """The first two letters of Spark's type of a variant."""
    return f"left(schema_of_variant({variant}), 2)"


def _exact_json(plain: str, quoted: str) -> str:
    """JSON with its numbers as they are in the same JSON with all numbers in quotes."""
    number = _number_text("trim(BOTH '\"' FROM `$quoted`)")
    token = f"CASE WHEN `$token` = `$quoted` THEN `$token` ELSE {number} END"
    tokens = (f"regexp_extract_all({json}, {_TOKENS}, 0)" for json in (plain, quoted))
    return f"array_join(zip_with({', '.join(tokens)}, (`$token`, `$quoted`) -> {token}), '')"


def _number_text(number: str) -> str:
    """A JSON number as Java's BigDecimal shows it: with an exponent only if it is above 0 or the first digit far behind the point."""
    fraction = "char_length(regexp_extract(`$number`, '[.]([0-9]+)', 1))"
    exponent = "CAST(coalesce(nullif(regexp_extract(`$number`, '[eE](.+)', 1), ''), '0') AS BIGINT)"
    digits = "ltrim('0', replace(regexp_extract(`$number`, '[0-9.]+', 0), '.', ''))"
    parts = (
        f"named_struct('sign', regexp_extract(`$number`, '^-?', 0), 'digits', coalesce(nullif({digits}, ''), '0'),"
        f" 'exponent', {exponent} - {fraction})"
    )
    point = "(`$parts`.exponent + char_length(`$parts`.digits))"
    behind = "CASE WHEN char_length(`$parts`.digits) > 1 THEN concat('.', substring(`$parts`.digits, 2)) ELSE '' END"
    plain = (
        "CASE WHEN `$parts`.exponent = 0 THEN `$parts`.digits"
        f" WHEN {point} <= 0 THEN concat('0.', repeat('0', CAST(-{point} AS INT)), `$parts`.digits)"
        f" ELSE concat(left(`$parts`.digits, CAST({point} AS INT)), '.', substring(`$parts`.digits, CAST({point} AS INT) + 1)) END"
    )
    shown = (
        f"concat(`$parts`.sign, CASE WHEN `$parts`.exponent <= 0 AND {point} > -6 THEN {plain}"
        f" ELSE concat(left(`$parts`.digits, 1), {behind}, 'E', format_string('%+d', {point} - 1)) END)"
    )
    unusual = "`$number` RLIKE '[eE]|^-?0[.]0{6}' AND NOT `$number` RLIKE '[eE][-+]?[0-9]{18}'"
    cases = f"CASE WHEN {unusual} THEN {let('$parts', parts, shown)} WHEN `$number` = '-0' THEN '0' ELSE `$number` END"
    return let("$number", number, cases)


# -- paths and modes -------------------------------------------------------------------------------------------------------------


def _constant_path(text: str) -> JsonPath | None:
    known = string_literal(text)
    return None if known is None else compile_path(known)


def _variant_path(path: JsonPath | None) -> str | None:
    """The same path below the array around a document, as a constant; None if VARIANT has no such paths."""
    if path is None or not path.definite:
        return None
    steps = ["$[0]"]
    for step in path.steps:
        if isinstance(step, int):
            if not 0 <= step <= _GREATEST_INDEX:
                return None
            steps.append(f"[{step}]")
        elif isinstance(step, str):
            quote = next((q for q in "\"'" if q not in step), None)
            if quote is None or "?" in step:
                return None
            steps.append(f"[{quote}{step}{quote}]")
    return quote_text("".join(steps))


def _mode(texts: Sequence[str], place: int, default: str = "NULL") -> str:
    known = string_literal(texts[place]) if len(texts) > place else None
    return known.upper() if known else default


def _bound(document: str, body: str) -> str:
    return body if _is_column(document) else let("$document", document, body)


def _document(text: str) -> _Document:
    return _Document(text if _is_column(text) else "`$document`")


def _is_column(text: str) -> bool:
    return text.startswith("`") and text.endswith("`") and text.count("`") == 2


def _or_modes(found: str, document: _Document, path: JsonPath, empty: str, error: str) -> str:
    """`found`, or what the modes say of its NULLs, which are empty to a lax path and an error to a strict one; so is JSON null."""
    missing = error if path.strict else empty
    return (
        found if missing == "NULL" else f"coalesce({found}, CASE WHEN {document.text} IS NOT NULL THEN {missing} END)"
    )


def _failure(function: str, clause: str, type: str = "STRING") -> str:
    situation = (
        "the path leads to no value" if clause == "EMPTY" else "the text is not JSON or the path does not fit it"
    )
    message = f"{function}: {situation}; say NULL ON {clause} or DEFAULT … ON {clause}"
    return f"CAST(raise_error({quote_text(message)}) AS {type})"


# -- functions -------------------------------------------------------------------------------------------------------------------


def value_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """JSON_VALUE."""
    path = _constant_path(texts[1])
    place = _variant_path(path)
    if path is None or place is None:
        return None
    document = _document(texts[0])
    modes = []
    for clause, at in (("EMPTY", 2), ("ERROR", 4)):
        default = texts[at + 1] if len(texts) > at + 1 else "NULL"
        given = {"DEFAULT": default, "ERROR": _failure("JSON_VALUE", clause)}
        modes.append(given.get(_mode(texts, at), "NULL"))
    return _bound(texts[0], _or_modes(document.read(document.scalar(place)), document, path, *modes))


def query_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """JSON_QUERY."""
    path = _constant_path(texts[1])
    place = _variant_path(path)
    if path is None or place is None:
        return None
    document = _document(texts[0])
    match _mode(texts, 2, "WITHOUT"):
        case "UNCONDITIONAL":
            shown = "CASE WHEN `$found` <> 'null' THEN concat('[', `$found`, ']') END"
        case "CONDITIONAL":
            shown = "CASE WHEN left(`$found`, 1) = '[' THEN `$found` WHEN `$found` <> 'null' THEN concat('[', `$found`, ']') END"
        case _:
            shown = "CASE WHEN left(`$found`, 1) IN ('[', '{') THEN `$found` END"
    modes = []
    for clause, at in (("EMPTY", 3), ("ERROR", 4)):
        given = {"EMPTY ARRAY": "'[]'", "EMPTY OBJECT": "'{}'", "ERROR": _failure("JSON_QUERY", clause)}
        modes.append(given.get(_mode(texts, at), "NULL"))
    found = document.read(let("$found", document.json(place), shown))
    return _bound(texts[0], _or_modes(found, document, path, *modes))


def exists_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """JSON_EXISTS."""
    path = _constant_path(texts[1])
    place = _variant_path(path)
    if path is None or place is None:
        return None
    document = _document(texts[0])
    at = _at("`$json`", place)
    found = document.read(f"CASE WHEN {at} IS NOT NULL AND NOT is_variant_null({at}) THEN true END")
    given = {"TRUE": "true", "UNKNOWN": "CAST(NULL AS BOOLEAN)", "ERROR": _failure("JSON_EXISTS", "ERROR", "BOOLEAN")}
    error = given.get(_mode(texts, 2, "FALSE"), "false") if path.strict else "false"
    return _bound(texts[0], f"coalesce({found}, CASE WHEN {document.text} IS NOT NULL THEN {error} END)")


_KINDS = {
    "VALUE": "size({0}) = 1",
    "OBJECT": "get({0}, 0) = 'OB'",
    "ARRAY": "get({0}, 0) = 'AR'",
    "SCALAR": "get({0}, 0) NOT IN ('OB', 'AR')",
}


def is_json_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    """IS JSON."""
    whole = _document(texts[0]).whole
    kinds = f"transform({whole}, `$json` -> {_kind(_at('`$json`', _ROOT))})"
    wanted = _mode(texts, 1, "VALUE")
    found = _KINDS[wanted].format(whole if wanted == "VALUE" else kinds)
    return _bound(texts[0], f"coalesce({found}, false)")


def _place(texts: Sequence[str]) -> str | None:
    """The optional path of JSON_LENGTH and JSON_TYPE, of which strict and lax are the same."""
    return _ROOT if len(texts) == 1 else _variant_path(_constant_path(texts[1]))


def length_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """JSON_LENGTH."""
    place = _place(texts)
    if place is None:
        return None
    sizes = (
        f"size(try_variant_get(`$json`, {place}, '{type}'))" for type in ("array<variant>", "map<string, variant>")
    )
    found = f"coalesce({', '.join(sizes)}, CASE WHEN {_at('`$json`', place)} IS NOT NULL THEN 1 END)"
    return _bound(texts[0], _document(texts[0]).read(found))


def type_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """JSON_TYPE."""
    place = _place(texts)
    if place is None:
        return None
    names = {"OB": "object", "AR": "array", "ST": "string", "BO": "boolean", "VO": "null"}
    whens = " ".join(f"WHEN '{kind}' THEN '{name}'" for kind, name in names.items())
    at = _at("`$json`", place)
    found = f"CASE WHEN {at} IS NOT NULL THEN CASE {_kind(at)} {whens} ELSE 'number' END END"
    return _bound(texts[0], _document(texts[0]).read(found))


def elements_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    """JSON_ELEMENTS."""
    document = _document(texts[0])
    array, quoted = (f"try_variant_get({d}, {_ROOT}, 'array<variant>')" for d in ("`$json`", document.quoted))
    text = (
        "CASE WHEN left(`$found`, 1) = '\"' THEN CAST(`$element` AS STRING) WHEN `$found` <> 'null' THEN `$found` END"
    )
    plain = f"transform({array}, `$element` -> {let('$found', 'to_json(`$element`)', text)})"
    exact = let("$found", _exact_json("to_json(`$element`)", "to_json(`$digits`)"), text)
    pairs = f"zip_with({array}, {quoted}, (`$element`, `$digits`) -> {exact})"
    return _bound(
        texts[0], document.read(f"CASE WHEN {document.text} RLIKE {_HAS_FRACTIONS} THEN {pairs} ELSE {plain} END")
    )


def unquote_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    """JSON_UNQUOTE."""
    document = _document(texts[0])
    text = document.text
    value = document.read(f"try_variant_get(`$json`, {_ROOT}, 'string')")
    quoted = f"char_length({text}) >= 2 AND startswith({text}, '\"') AND endswith({text}, '\"')"
    return _bound(texts[0], f"CASE WHEN {quoted} THEN coalesce({value}, {text}) ELSE {text} END")
