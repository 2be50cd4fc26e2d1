"""Regular expression functions: Java's syntax (see `regex_syntax`), evaluated once per distinct text.

A wrong pattern gives NULL, of REGEXP FALSE, as in Flink, be it a constant or from data. One that Java may take and that is not supported is
an error: of a constant when the pipeline is validated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.record import record
from flowrun.core.types import BOOLEAN, INT, STRING, DataType, array
from flowrun.errors import DataError
from flowrun.functions.contract import Datum, ScalarFunction
from flowrun.functions.regex.re2 import Re2Pattern, to_re2
from flowrun.functions.regex.syntax import UnsupportedRegexError, regex_problem, try_compile
from flowrun.functions.regex.timed import Matching, guarded
from flowrun.functions.rules import INTEGER, TEXT, Parameter, Rule
from flowrun.functions.strings import spark_texts as texts
from flowrun.functions.vectors import gather, is_constant, map_distinct

REGEX = Parameter("a regular expression", TEXT.resolve, STRING, check=regex_problem)
"""A parameter that takes a Java regular expression."""

Matcher = Callable[..., Any]
"""(text, compiled pattern, other arguments) → value."""


Quick = Callable[..., "pa.Array | None"]
"""(distinct texts, pattern for RE2, other constants) → values by an Arrow kernel, or None if it cannot give the same."""


@record
class _WithPattern:
    """A kernel whose second argument is a pattern: compiled once if it is constant, and run by RE2 if that means the same.

    `wrong` is the result where the pattern is none.
    """

    matcher: Matcher
    quick: Quick | None = None
    wrong: bool | None = None

    def __call__(self, arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
        matcher, (text, pattern, *others) = self.matcher, arguments
        if is_constant(pattern) and pattern.is_valid:
            compiled = _compiled(pattern.as_py())
            if compiled is None:
                return map_distinct(lambda _: self.wrong, [text], rows, result.arrow)
            simple = to_re2(pattern.as_py(), compiled) if self.quick is not None else None
            if simple is not None and not is_constant(text) and all(map(is_constant, others)):
                encoded = pc.dictionary_encode(text)
                values = self.quick(encoded.dictionary, simple, *(o.as_py() for o in others)) if self.quick else None
                if values is not None:
                    return gather(values, encoded.indices)
            safe = guarded(pattern.as_py(), compiled)
            return map_distinct(lambda s, *rest: matcher(s, safe(s), *rest), [text, *others], rows, result.arrow)

        def from_data(s: str, p: str, *rest: Any) -> Any:
            regex = _compiled(p)
            return self.wrong if regex is None else matcher(s, guarded(p, regex)(s), *rest)

        return map_distinct(from_data, arguments, rows, result.arrow)


def _compiled(pattern: str) -> re.Pattern[str] | None:
    try:
        return try_compile(pattern)
    except UnsupportedRegexError as error:
        raise DataError(f"regular expression {error}", hint="write it without that part of Java's language") from error


def _extract(text: str, pattern: Matching, group: int = 0) -> str | None:
    match = pattern.search(text)
    return match[group] if match is not None and 0 <= group <= pattern.groups else None


def _extract_all(text: str, pattern: Matching, group: int = 1) -> list[str | None] | None:
    if not 0 <= group <= pattern.groups:
        return None
    return [match[group] for match in pattern.finditer(text)]


def _replace(text: str, pattern: Matching, replacement: str) -> str:
    return pattern.sub(lambda _: replacement, text)


def _count(text: str, pattern: Matching) -> int:
    return sum(1 for _ in pattern.finditer(text))


def _instr(text: str, pattern: Matching) -> int:
    match = pattern.search(text)
    return 0 if match is None else match.start() + 1


def _substr(text: str, pattern: Matching) -> str | None:
    match = pattern.search(text)
    return None if match is None else match[0]


def _matches(text: str, pattern: Matching) -> bool:
    return bool(pattern.pattern) and pattern.search(text) is not None


def _quick_extract(texts: pa.Array, pattern: Re2Pattern, group: int | None = 0) -> pa.Array | None:
    capturing = None if group is None else pattern.capturing(group)
    return None if capturing is None else pc.struct_field(pc.extract_regex(texts, pattern=capturing), [0])


def _quick_replace(texts: pa.Array, pattern: Re2Pattern, replacement: str | None) -> pa.Array | None:
    # RE2 leaves out an empty match right after another match, and would take away the line feed behind a `$`
    if replacement is None or pattern.matches_empty or pattern.at_end:
        return None
    escaped = replacement.replace("\\", "\\\\")
    return pc.replace_substring_regex(texts, pattern=pattern.plain, replacement=escaped)


def _quick_match(texts: pa.Array, pattern: Re2Pattern) -> pa.Array | None:
    return pc.match_substring_regex(texts, pattern=pattern.plain) if pattern.plain else None


_EXTRACT = "REGEXP_EXTRACT(string, regex[, group])"
_EXTRACT_ALL = "REGEXP_EXTRACT_ALL(string, regex[, group])"
_TWO = (TEXT, REGEX)

_FUNCTIONS = (
    ScalarFunction(
        "REGEXP", Rule("REGEXP(string, regex)", BOOLEAN, _TWO), _WithPattern(_matches, _quick_match, wrong=False),
        "REGEXP(string, regex)",
        "Whether some part of the string matches a Java regular expression; false for one that is empty or wrong.", texts.regexp_text,
    ),
    ScalarFunction(
        "REGEXP_EXTRACT", Rule(_EXTRACT, STRING, _TWO, (INTEGER,)), _WithPattern(_extract, _quick_extract),
        _EXTRACT, "A group (0, the default: all) of the first match; NULL if there is none, or the pattern is wrong.", texts.extract_text,
    ),
    ScalarFunction(
        "REGEXP_EXTRACT_ALL", Rule(_EXTRACT_ALL, array(STRING), _TWO, (INTEGER,)),
        _WithPattern(_extract_all), _EXTRACT_ALL, "A group (1, the default) of every match, as an array.",
        texts.extract_all_text,
    ),
    ScalarFunction(
        "REGEXP_REPLACE", Rule("REGEXP_REPLACE(string, regex, replacement)", STRING, (*_TWO, TEXT)),
        _WithPattern(_replace, _quick_replace), "REGEXP_REPLACE(string, regex, replacement)",
        "The string with every match replaced by a text, taken literally.", texts.regexp_replace_text,
    ),
    ScalarFunction(
        "REGEXP_COUNT", Rule("REGEXP_COUNT(string, regex)", INT, _TWO), _WithPattern(_count),
        "REGEXP_COUNT(string, regex)", "The number of matches.", texts.count_text,
    ),
    ScalarFunction(
        "REGEXP_INSTR", Rule("REGEXP_INSTR(string, regex)", INT, _TWO), _WithPattern(_instr),
        "REGEXP_INSTR(string, regex)", "The 1-based position of the first match; 0 if there is none.", texts.instr_regexp_text,
    ),
    ScalarFunction(
        "REGEXP_SUBSTR", Rule("REGEXP_SUBSTR(string, regex)", STRING, _TWO), _WithPattern(_substr),
        "REGEXP_SUBSTR(string, regex)", "The first match; NULL if there is none.", texts.extract_text,
    ),
)  # fmt: skip

REGEXPS = tuple(replace(function, fallible=True) for function in _FUNCTIONS)
"""The regular expression functions."""
REGEX_FUNCTIONS = frozenset(function.name for function in REGEXPS)
"""Their names. Their second argument is the pattern; they fail where it takes too long, see `regex_timed.may_exceed_limit`."""
