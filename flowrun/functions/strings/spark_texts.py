# ruff: noqa: ARG001 - texts share one signature
"""String functions as Spark SQL text of exactly the same value, as far as Spark has them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flowrun.core.record import record
from flowrun.core.types import DataType
from flowrun.functions.regex.syntax import regex_problem, try_compile
from flowrun.functions.spark_text import integer_literal, quote_text, string_literal

_GREATEST_INT = 2**31 - 1
_JAVA_NUMBER = (
    r"[\x00-\x20]*[+-]?(?:NaN|Infinity|(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)"
    r"[pP][+-]?\d+)[fFdD]?)[\x00-\x20]*"
)


def substring_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    """SUBSTRING. Spark counts a negative start beyond the text from before its first character; here the part is empty then."""
    text, start, *length = texts
    begin = integer_literal(start)
    size = [integer_literal(n) for n in length]
    if begin is not None and None not in size:
        if any(n is not None and n < 0 for n in size):
            return f"CASE WHEN {text} IS NOT NULL THEN CAST(NULL AS STRING) END"
        bounds = ", ".join(str(max(min(n, _GREATEST_INT), -_GREATEST_INT)) for n in (begin, *size) if n is not None)
        part = f"substring({text}, {bounds})"
        if begin >= 0:
            return part
        return f"CASE WHEN char_length({text}) < {-begin} THEN substring({text}, 1, 0) ELSE {part} END"
    bounds = ", ".join(f"CAST({_clamped(n)} AS INT)" for n in (start, *length))
    negative = "".join(f"WHEN {n} < 0 THEN CAST(NULL AS STRING) " for n in length)
    known = " AND ".join(f"{n} IS NOT NULL" for n in length) or "true"
    beyond = f"{start} < 0 AND char_length({text}) + {start} < 0 AND {known}"
    return f"CASE {negative}WHEN {beyond} THEN '' ELSE substring({text}, {bounds}) END"


def _clamped(text: str) -> str:
    return f"CASE WHEN {text} > {_GREATEST_INT} THEN {_GREATEST_INT} WHEN {text} < -{_GREATEST_INT} THEN -{_GREATEST_INT} ELSE {text} END"


@record
class Pad:
    """LPAD or RPAD."""

    function: str

    def __call__(self, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
        text, width, padding = texts
        return f"CASE WHEN {width} >= 0 AND {padding} <> '' THEN {self.function}({text}, {width}, {padding}) END"


def locate_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """LOCATE from a constant start."""
    needle, text = texts[:2]
    start = integer_literal(texts[2]) if len(texts) > 2 else 1
    if start is None:
        return None
    empty = f"CASE WHEN {text} IS NOT NULL THEN 1 END"
    return f"CASE WHEN {needle} = '' THEN {empty} ELSE locate({needle}, {text}, {max(start, 1)}) END"


def instr_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """INSTR of the first occurrence."""
    return f"instr({texts[0]}, {texts[1]})" if len(texts) == 2 else None


def replace_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """REPLACE of a constant; an empty one differs."""
    return f"replace({', '.join(texts)})" if string_literal(texts[1]) else None


def _literally(text: str) -> str | None:
    """A regular expression, as a constant, that matches a text as it is."""
    return None if "\\E" in text else quote_text(f"\\Q{text}\\E")


def split_index_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """SPLIT_INDEX by a constant text or character code."""
    text, separator, index = texts
    code = integer_literal(separator)
    known = string_literal(separator) if code is None else chr(code) if 1 <= code <= 255 else None
    pattern = _literally(known) if known else None
    return None if pattern is None else f"CASE WHEN {text} <> '' THEN get(split({text}, {pattern}, -1), {index}) END"


def split_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """SPLIT by a constant text."""
    known = string_literal(texts[1])
    pattern = _literally(known) if known else None
    return None if pattern is None else f"filter(split({texts[0]}, {pattern}, -1), `$part` -> {texts[0]} <> '')"


def elt_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    """ELT."""
    index, *values = texts
    whens = " ".join(f"WHEN {place}L THEN {value}" for place, value in enumerate(values, 1))
    return f"CASE {index} {whens} END"


@record
class Matches:
    """Whether all of a text matches a Java regular expression, false for NULL; of other types what `of_numbers` says."""

    regex: str
    of_numbers: str

    def __call__(self, texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
        if types[0].is_character:
            whole = quote_text(rf"\A(?:{self.regex})\z")
            return f"coalesce({texts[0]} RLIKE {whole}, false)"
        if self.of_numbers == "integers":
            return f"({texts[0]} IS NOT NULL)" if types[0].is_integer else "false"
        return f"({texts[0]} IS NOT NULL)" if self.of_numbers == "all" else "false"


ALPHABETIC = Matches(r"\p{L}+", "none")
DIGITS = Matches(r"\p{Nd}+", "integers")
DECIMAL = Matches(_JAVA_NUMBER, "all")


def encode_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """ENCODE into a form of Unicode; what others cannot express is an error in Spark."""
    charset = (string_literal(texts[1]) or "").upper()
    if charset == "UTF-8":
        return f"CAST({texts[0]} AS BINARY)"
    return f"encode({texts[0]}, {texts[1]})" if charset.startswith("UTF-16") else None


def decode_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """DECODE of UTF-8; other malformed bytes are an error in Spark."""
    charset = (string_literal(texts[1]) or "").upper()
    return f"make_valid_utf8(CAST({texts[0]} AS STRING))" if charset == "UTF-8" else None


# -- regular expressions: they are Java's ----------------------------------------------------------------------------------------


def _pattern(text: str) -> str | None:
    """The value of a constant pattern; one that is wrong, as those from data may be, is NULL here and an error there."""
    pattern = string_literal(text)
    return None if pattern is None or regex_problem(pattern) or try_compile(pattern) is None else pattern


def regexp_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """REGEXP."""
    return f"({texts[0]} RLIKE {texts[1]})" if _pattern(texts[1]) else None


def count_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """REGEXP_COUNT."""
    pattern = _pattern(texts[1])
    return None if pattern is None or may_match_empty(pattern) else f"regexp_count({texts[0]}, {texts[1]})"


def may_match_empty(pattern: str) -> bool:
    r"""Whether a match may have no width: Java finds such ones within characters of two UTF-16 units too.

    >>> may_match_empty("a*"), may_match_empty("a|$"), may_match_empty(r"\bab*\b")
    (True, True, False)
    """
    if re.search(r"\(\?<?[=!]", pattern):
        return True  # looks around: not examined further
    compiled = try_compile(re.sub(r"\\[bBG]", "", pattern))
    return compiled is None or compiled.search("") is not None


def extract_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """REGEXP_EXTRACT; Spark gives an empty text for a group that took no part, here it is NULL."""
    text, pattern = texts[:2]
    group = integer_literal(texts[2]) if len(texts) > 2 else 0
    inner = _pattern(pattern)
    if inner is None or group is None or not _has_group(inner, group):
        return None
    if group == 0 and not may_match_empty(inner):
        return f"regexp_substr({text}, {pattern})"
    if group and _may_skip_groups(inner):
        return None
    return f"CASE WHEN {text} RLIKE {pattern} THEN regexp_extract({text}, {pattern}, {group}) END"


def extract_all_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """REGEXP_EXTRACT_ALL."""
    group = integer_literal(texts[2]) if len(texts) > 2 else 1
    inner = _pattern(texts[1])
    if inner is None or group is None or (group and _may_skip_groups(inner)) or may_match_empty(inner):
        return None
    if not _has_group(inner, group):
        return None
    return f"regexp_extract_all({texts[0]}, {texts[1]}, {group})"


def _has_group(pattern: str, group: int) -> bool:
    compiled = try_compile(pattern)
    return compiled is not None and 0 <= group <= compiled.groups


def _may_skip_groups(pattern: str) -> bool:
    return any(mark in pattern for mark in ("|", ")?", ")*", "){"))


def regexp_replace_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """REGEXP_REPLACE by a constant, which is taken literally."""
    replacement = string_literal(texts[2])
    pattern = _pattern(texts[1])
    if pattern is None or replacement is None or may_match_empty(pattern):
        return None
    escaped = quote_text(re.sub(r"[\\$]", r"\\\g<0>", replacement))
    return f"regexp_replace({texts[0]}, {texts[1]}, {escaped})"


def instr_regexp_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """REGEXP_INSTR. What editions of Spark count in their own differs."""
    text, regex = texts
    pattern = _pattern(regex)
    if pattern is None or may_match_empty(pattern):
        return None
    before = f"get(split({text}, {regex}, 2), 0)"
    return f"CASE WHEN {text} RLIKE {regex} THEN char_length({before}) + 1 WHEN {text} IS NOT NULL THEN 0 END"


# -- forms of a text -------------------------------------------------------------------------------------------------------------


def initcap_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    """INITCAP. To Spark's own, words end at spaces only."""
    runs = f"regexp_extract_all({texts[0]}, '[0-9A-Za-z]++|[^0-9A-Za-z]++', 0)"
    word = "concat(upper(left(`$run`, 1)), lower(substring(`$run`, 2)))"
    return f"array_join(transform({runs}, `$run` -> CASE WHEN `$run` RLIKE '^[0-9A-Za-z]' THEN {word} ELSE `$run` END), '')"


def overlay_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    """OVERLAY. Spark's own counts positions outside of the text."""
    text, replacement, start, *length = texts
    size = f"char_length({text})"
    count = length[0] if length else f"char_length({replacement})"
    unknown = " OR ".join(f"{t} IS NULL" for t in (replacement, *length))
    tail = f"CASE WHEN {count} > 0 AND {count} <= {size} - {start} THEN substring({text}, CAST({start} + {count} AS INT)) ELSE '' END"
    return (
        f"CASE WHEN {unknown} THEN NULL WHEN {start} <= 0 OR {start} > {size} THEN {text}"
        f" ELSE concat(left({text}, CAST({start} - 1 AS INT)), {replacement}, {tail}) END"
    )


def from_base64_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    """FROM_BASE64. Spark's own skips what is no Base64."""
    text = f"CAST({texts[0]} AS STRING)"
    four = r"[A-Za-z0-9+/]"
    form = quote_text(rf"\A(?:{four}{{4}})*+(?:{four}{{2}}==|{four}{{3}}=)?\z")
    decoded = f"CAST(unbase64({text}) AS STRING)"
    failure = (
        f"CAST(raise_error(concat('FROM_BASE64: ''', left({text}, 60), ''' is not Base64 of UTF-8 text')) AS STRING)"
    )
    return f"CASE WHEN {text} RLIKE {form} AND is_valid_utf8({decoded}) THEN {decoded} WHEN {texts[0]} IS NOT NULL THEN {failure} END"


def str_to_map_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """STR_TO_MAP by constants without a meaning of their own in regular expressions."""
    text, pairs, entry = texts[0], *(string_literal(t) for t in (*texts[1:], *("','", "'='")[len(texts) - 1 :]))
    if not pairs or not entry or len(pairs) > 1 or re.search(r"[\\^$.|?*+()\[{]", pairs + entry):
        return None
    trailing = quote_text(pairs + r"+\z")
    split = f"split(regexp_replace({text}, {trailing}, ''), {quote_text(pairs)}, -1)"
    parts = f"transform({split}, `$pair` -> split(`$pair`, {quote_text(entry)}, 2))"
    entries = f"transform({parts}, `$pair` -> struct(get(`$pair`, 0), get(`$pair`, 1)))"
    return f"CASE WHEN {text} = '' THEN CAST(map() AS MAP<STRING, STRING>) ELSE map_from_entries({entries}) END"


def printf_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str | None:
    """PRINTF of `%s` and `%d` in a constant, of texts and integers; Java rounds numbers and pads NULL in other ways."""
    form = string_literal(texts[0])
    if form is None:
        return None
    kinds = re.findall("%(.?)", form.replace("%%", ""), re.DOTALL)
    if len(kinds) >= len(texts) or not set(kinds) <= {"s", "d"}:
        return None
    wanted = zip(kinds, types[1:], strict=False)
    fits = all(type.is_integer or (kind == "s" and type.is_character) for kind, type in wanted)
    return f"format_string({', '.join(texts)})" if fits else None
