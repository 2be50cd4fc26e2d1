"""Regular expression functions: Java's syntax (see `regex_syntax`), evaluated once per distinct text.

A constant pattern that is wrong is an error when the pipeline is validated; one that comes from data gives NULL, as in Flink.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.record import record
from flowrun.core.types import BOOLEAN, INT, STRING, DataType, array
from flowrun.functions.contract import Argument, Datum, ScalarFunction
from flowrun.functions.regex.re2 import Re2Pattern, to_re2
from flowrun.functions.regex.syntax import compile_java, regex_problem, try_compile
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
    """A kernel whose second argument is a pattern: compiled once if it is constant, and run by RE2 if that means the same."""

    matcher: Matcher
    quick: Quick | None = None

    def __call__(self, arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
        matcher, (text, pattern, *others) = self.matcher, arguments
        if is_constant(pattern) and pattern.is_valid:
            compiled = try_compile(pattern.as_py())
            if compiled is None:
                return map_distinct(lambda *_: None, [text], rows, result.arrow)
            simple = to_re2(pattern.as_py(), compiled) if self.quick is not None else None
            if simple is not None and not is_constant(text) and all(map(is_constant, others)):
                encoded = pc.dictionary_encode(text)
                values = self.quick(encoded.dictionary, simple, *(o.as_py() for o in others)) if self.quick else None
                if values is not None:
                    return gather(values, encoded.indices)
            safe = guarded(pattern.as_py(), compiled)
            return map_distinct(lambda s, *rest: matcher(s, safe(s), *rest), [text, *others], rows, result.arrow)

        def from_data(s: str, p: str, *rest: Any) -> Any:
            regex = try_compile(p)
            return None if regex is None else matcher(s, guarded(p, regex)(s), *rest)

        return map_distinct(from_data, arguments, rows, result.arrow)


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


class _Matches:
    """The kernel of REGEXP: where a pattern from data is wrong, nothing matches."""

    def __call__(self, arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
        found = _WithPattern(_matches, _quick_match)(arguments, rows, result)
        if is_constant(arguments[1]):
            return found
        given = pc.and_(pc.is_valid(arguments[0]), pc.is_valid(arguments[1]))
        return pc.if_else(pc.and_(given, pc.is_null(found)), False, found)


def _group_check(arguments: Sequence[Argument]) -> str | None:
    """A constant group index must exist in a constant pattern."""
    pattern, index = arguments[1], arguments[2] if len(arguments) == 3 else None
    if index is None or index.literal is None or pattern.literal is None:
        return None
    groups = compile_java(pattern.literal).groups
    if 0 <= index.literal <= groups:
        return None
    return f"the regular expression has {groups} groups, there is no group {index.literal}"


_EXTRACT = "REGEXP_EXTRACT(string, regex[, group])"
_EXTRACT_ALL = "REGEXP_EXTRACT_ALL(string, regex[, group])"
_TWO = (TEXT, REGEX)

_FUNCTIONS = (
    ScalarFunction(
        "REGEXP", Rule("REGEXP(string, regex)", BOOLEAN, _TWO), _Matches(), "REGEXP(string, regex)",
        "Whether some part of the string matches a Java regular expression; false for an empty one.", texts.regexp_text,
    ),
    ScalarFunction(
        "REGEXP_EXTRACT", Rule(_EXTRACT, STRING, _TWO, (INTEGER,), check=_group_check), _WithPattern(_extract, _quick_extract),
        _EXTRACT, "A group (0, the default: all) of the first match; NULL if there is none.", texts.extract_text,
    ),
    ScalarFunction(
        "REGEXP_EXTRACT_ALL", Rule(_EXTRACT_ALL, array(STRING), _TWO, (INTEGER,), check=_group_check),
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
