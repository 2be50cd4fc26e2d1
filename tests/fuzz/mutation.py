"""Damage to a text: by its words, by its lines and by its characters, with pieces of other texts and values at the limits of types."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

_WORDS = re.compile(r"'(?:[^']|'')*'|`[^`]*`|[^\W\d]\w*|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\s+|[<>!|=]{1,2}|.", re.DOTALL)
_LONGEST = 12_000

NUMBERS = (
    "0", "1", "-1", "2", "127", "128", "32768", "2147483647", "-2147483648", "2147483648", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "9" * 38, "9" * 39, "9" * 400, "0.1", "1e308", "1e400", "1e-400", "1.", ".5", "0x1F", "1_000",
)  # fmt: skip
TEXTS = (
    "''", "'''", "'x'", "'%'", "'_'", "'1'", "'-1'", "'1e400'", "'NaN'", "'9999-12-31 23:59:59.999999999'", "'0001-01-01'", "'0000-00-00'",
    "'10000-01-01'", "'-5000-01-01 00:00:00'", "'294247-01-10 04:00:54.775'", "'9223372036854775807'", "'99999999999'", "'(a+)+$'", "'('",
    "'\\'", "'[a-'", "'$.a[*]'", "'lax $..'", "'UTC'", "'+99:99'", "'yyyy-MM-dd'", "'%s%n%d'", "'\U0001f600\u0301'", "'\x00'", "'1 day'",
    "'10000000'", "'\u0661'", "'{\"a\": [1, {}]}'", "'true'",
)  # fmt: skip
WORDS = (
    "SELECT", "DISTINCT", "FROM", "WHERE", "GROUP", "BY", "HAVING", "ORDER", "LIMIT", "OFFSET", "FETCH", "AS", "ON", "USING", "JOIN", "LEFT",
    "RIGHT", "FULL", "CROSS", "NATURAL", "SEMI", "ANTI", "LATERAL", "TABLE", "UNNEST", "VALUES", "UNION", "ALL", "ANY", "SOME", "EXCEPT", "INTERSECT",
    "EXISTS", "IN", "NOT", "AND", "OR", "BETWEEN", "SYMMETRIC", "LIKE", "ESCAPE", "SIMILAR TO", "IS", "NULL", "TRUE", "FALSE", "UNKNOWN", "CASE",
    "WHEN", "THEN", "ELSE", "END", "CAST", "TRY_CAST", "INTERVAL", "DAY", "HOUR", "MINUTE", "SECOND", "MONTH", "YEAR", "TO", "OVER", "PARTITION",
    "ROWS", "RANGE", "PRECEDING", "FOLLOWING", "UNBOUNDED", "CURRENT ROW", "WINDOW", "WITH", "RECURSIVE", "CREATE", "DROP", "ALTER", "VIEW",
    "TEMPORARY", "FUNCTION", "CATALOG", "DATABASE", "INSERT", "INTO", "OVERWRITE", "SET", "RESET", "USE", "WATERMARK", "FOR", "PRIMARY KEY",
    "NOT ENFORCED", "METADATA", "VIRTUAL", "COMMENT", "EXECUTE", "STATEMENT", "DESCRIPTOR", "TUMBLE", "HOP", "CUMULATE", "SESSION",
    "GROUPING SETS", "ROLLUP", "CUBE", "FILTER", "WITHIN", "MATCH_RECOGNIZE", "MEASURES", "DEFINE", "PATTERN", "AFTER", "SKIP", "SYSTEM_TIME", "OF",
    "PROCTIME()", "ROW", "ARRAY", "MAP", "MULTISET", "INT", "BIGINT", "STRING", "DECIMAL(38, 38)", "TIMESTAMP(9)", "TIMESTAMP_LTZ(0)", "BYTES",
    "DATE", "TIME", "BOOLEAN", "DOUBLE", "CHAR(1)", "(", ")", "[", "]", "<", ">", ",", ";", ".", "*", "+", "-", "/", "%", "||", "=", "<>", "=>", "?",
    ":", "`", "'", '"', "--", "/*", "*/", "/*+", "${", "${A:-b}", "@", "#", "&", "|", "\\", "\n", "\t", "\x00", "\ud7ff", "é", "\U0001f600",
    "window_start", "rowtime", "a", "b", "k", "v", "s", "ts", "a.k", "b.*", "r.q.z", "n[1]", "m['x']", "null", "~", "{}", "[]", "- ", "!!python/object:x ",
    "&x ", "*x ", "<<: ", "? ", ": ", "| ", "> ",
)  # fmt: skip
_CHARACTERS = "\x00\t\n\r '`\xa0\x85\u2028\u3000\u0661\U0001f600\ufeff"
_NESTS = (
    ("(", ")"), ("ARRAY<", ">"), ("ROW<a ", ">"), ("MAP<INT, ", ">"), ("ARRAY[", "]"), ("CAST(", " AS INT)"), ("NOT ", ""), ("-", ""),
    ("ABS(", ")"), ("CASE WHEN TRUE THEN ", " END"), ("(SELECT * FROM ", ")"), ("SELECT * FROM (", ")"), ("", " + 1"), ("", " AND TRUE"),
    ("", " UNION ALL SELECT 1"), ("[", "]"), ("{a: ", "}"), ("- ", ""), ("", ".a"), ("", "[1]"), ("a JOIN ", " ON TRUE"), ("/*", "*/"), ("", ", 1"),
)  # fmt: skip


class Mutator:
    """Makes damaged texts out of right ones.

    Args:
        seeds: the right ones.
        names: words of the language that are worth trying, such as the names of functions.
    """

    def __init__(self, seeds: Sequence[str], names: Sequence[str] = ()) -> None:
        self._seeds = seeds
        self._words = (*WORDS, *names)

    def fresh(self, chance: random.Random) -> str:
        """A seed with some damage."""
        return self.damaged(chance.choice(self._seeds), chance)

    def damaged(self, text: str, chance: random.Random) -> str:
        """The text with one to five changes."""
        for _ in range(chance.choice((1, 1, 1, 2, 3, 5))):
            text = chance.choice(_CHANGES)(self, text, chance)
        return text[:_LONGEST]

    def piece(self, chance: random.Random) -> str:
        """A word, a value or a stretch of another text."""
        kind = chance.randrange(6)
        if kind < 3:
            return chance.choice(self._words)
        if kind == 3:
            return chance.choice(NUMBERS)
        if kind == 4:
            return chance.choice(TEXTS)
        pieces = _WORDS.findall(chance.choice(self._seeds)) or [""]
        start = chance.randrange(len(pieces))
        return "".join(pieces[start : start + chance.choice((1, 3, 7, 20, 60))])

    # -- one change each

    def _words_changed(self, text: str, chance: random.Random) -> str:
        pieces = _WORDS.findall(text) or [""]
        at = chance.randrange(len(pieces))
        stop = at + chance.choice((1, 1, 1, 2, 3, 8))
        other = chance.randrange(len(pieces))
        match chance.randrange(6):
            case 0:
                pieces[at:stop] = []
            case 1:
                pieces[at:at] = pieces[at:stop]
            case 2:
                pieces[at:stop] = [f" {self.piece(chance)} "]
            case 3:
                pieces[at:at] = [f" {self.piece(chance)} "]
            case 4:
                pieces[at], pieces[other] = pieces[other], pieces[at]
            case _:
                pieces[at:stop] = pieces[other : other + stop - at]
        return "".join(pieces)

    def _same_kind(self, text: str, chance: random.Random) -> str:
        pieces = _WORDS.findall(text)
        places = [i for i, p in enumerate(pieces) if not p.isspace()]
        if not places:
            return text
        at = chance.choice(places)
        old = pieces[at]
        if old[0].isdigit():
            pieces[at] = chance.choice(NUMBERS)
        elif old[0] == "'":
            pieces[at] = chance.choice(TEXTS)
        else:
            pieces[at] = chance.choice(self._words) if chance.random() < 0.6 else pieces[chance.choice(places)]
        return "".join(pieces)

    def _nested(self, text: str, chance: random.Random) -> str:
        pieces = _WORDS.findall(text) or [""]
        at = chance.randrange(len(pieces))
        stop = at + chance.choice((0, 1, 1, 3, 9))
        before, after = chance.choice(_NESTS)
        depth = chance.choice((1, 1, 1, 2, 2, 3, 10, 60, 400))
        return "".join((*pieces[:at], before * depth, *pieces[at:stop], after * depth, *pieces[stop:]))

    def _lines_changed(self, text: str, chance: random.Random) -> str:
        lines = text.split("\n")
        at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
        match chance.randrange(6):
            case 0:
                del lines[at]
            case 1:
                lines.insert(other, lines[at])
            case 2:
                lines[at], lines[other] = lines[other], lines[at]
            case 3:
                lines[at] = "  " + lines[at]
            case 4:
                lines[at] = lines[at].removeprefix("  ")
            case _:
                donor = chance.choice(self._seeds).split("\n")
                start = chance.randrange(len(donor))
                lines[at:at] = donor[start : start + chance.choice((1, 2, 5, 15))]
        return "\n".join(lines)

    def _value_changed(self, text: str, chance: random.Random) -> str:
        """What stands behind a colon or an equals sign becomes something else."""
        places = [m.end() for m in re.finditer(r"[:=] ?", text)]
        if not places:
            return text
        at = chance.choice(places)
        end = re.compile(r"[\n,;}\])]|$").search(text, at)
        assert end is not None
        return text[:at] + self.piece(chance) + text[end.start() :]

    def _characters_changed(self, text: str, chance: random.Random) -> str:
        at = chance.randrange(len(text) + 1)
        match chance.randrange(3):
            case 0:
                return text[:at]
            case 1:
                return text[:at] + chance.choice(_CHARACTERS) + text[at:]
            case _:
                return text[:at] + text[at + 1 :]


_CHANGES: tuple[Callable[[Mutator, str, random.Random], str], ...] = (
    Mutator._words_changed, Mutator._words_changed, Mutator._words_changed, Mutator._same_kind, Mutator._same_kind, Mutator._same_kind,
    Mutator._nested, Mutator._lines_changed, Mutator._value_changed, Mutator._characters_changed,
)  # fmt: skip
