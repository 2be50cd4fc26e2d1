"""Random expressions, each in Flink's SQL and in a DuckDB text of the same meaning.

The templates hold only what both sides define alike; where the spelling or the meaning differs (integer division, NULLs in GREATEST),
the DuckDB form says what Flink's documentation says. Doubles stay multiples of powers of two and never become −0, so that sums do not
depend on their order; what is not exact (averages, variances) is of kind FUZZY and is not computed with.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

INT, DOUBLE, DECIMAL, STRING, BOOLEAN, DATE, TIMESTAMP = (
    "BIGINT", "DOUBLE", "DECIMAL", "STRING", "BOOLEAN", "DATE", "TIMESTAMP",
)  # fmt: skip
WIDE, FUZZY, ARRAY = "WIDE", "FUZZY", "ARRAY"
KINDS = (INT, DOUBLE, DECIMAL, STRING, BOOLEAN, DATE, TIMESTAMP)
"""What is computed with. Columns may also be WIDE (a DECIMAL of 38 digits), FUZZY (an inexact DOUBLE) or an ARRAY."""

CASTS = {
    INT: ("BIGINT", "BIGINT"), DOUBLE: ("DOUBLE", "DOUBLE"), DECIMAL: ("DECIMAL(16, 2)", "DECIMAL(16, 2)"),
    STRING: ("STRING", "VARCHAR"), BOOLEAN: ("BOOLEAN", "BOOLEAN"), DATE: ("DATE", "DATE"),
    TIMESTAMP: ("TIMESTAMP(3)", "TIMESTAMP"),
}  # fmt: skip
"""The types of a kind in both dialects."""

WORDS = ("", "a", "ab", "abc", "Zoë", "ärger", "日本", "😀b", "a%b", "x_y", " pad ", "12", "-7", "b,c", ",")


@dataclass(frozen=True)
class Text:
    """One expression in both dialects."""

    ours: str
    duck: str


@dataclass(frozen=True)
class Template:
    """An expression with `{0}`, `{1}`, … for parts of the kinds `parts`, `{n}` for a digit and `{w}` for a word."""

    kind: str
    ours: str
    parts: tuple[str, ...]
    duck: str


def _template(kind: str, ours: str, *parts: str, duck: str | None = None) -> Template:
    return Template(kind, ours, parts, ours if duck is None else duck)


_DEC = "CAST({} AS DECIMAL(16, 2))"
_MS = "epoch_ms({0})"
_TEMPLATES = [
    _template(INT, "({0} + {1})", INT, INT),
    _template(INT, "({0} - {1})", INT, INT),
    _template(INT, "(({0} % 100) * ({1} % 100))", INT, INT),
    _template(INT, "({0} / NULLIF({1}, 0))", INT, INT, duck="({0} // NULLIF({1}, 0))"),
    _template(INT, "({0} % NULLIF({1}, 0))", INT, INT),
    _template(INT, "MOD({0}, {n} + 2)", INT, duck="({0} % ({n} + 2))"),
    _template(INT, "(- {0})", INT),
    _template(INT, "ABS({0})", INT),
    _template(INT, "SIGN({0})", INT),
    _template(INT, "CHAR_LENGTH({0})", STRING, duck="length({0})"),
    _template(INT, "OCTET_LENGTH({0})", STRING, duck="strlen({0})"),
    _template(INT, "POSITION({1} IN {0})", STRING, STRING, duck="instr({0}, {1})"),
    _template(INT, "CAST({0} AS BIGINT)", DOUBLE, duck="CAST(trunc({0}) AS BIGINT)"),
    _template(INT, "CAST({0} AS BIGINT)", DECIMAL, duck="CAST(trunc({0}) AS BIGINT)"),
    _template(INT, "CAST({0} AS INT)", BOOLEAN),
    _template(INT, "TRY_CAST({0} AS BIGINT)", STRING,
              duck="TRY_CAST(regexp_replace({0}, '[.][0-9]*$', '') AS BIGINT)"),
    *(_template(INT, f"EXTRACT({unit} FROM {{0}})", TIMESTAMP, duck=f"CAST(extract({unit} FROM {{0}}) AS BIGINT)")
      for unit in ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE")),
    _template(INT, "SECOND({0})", TIMESTAMP, duck="CAST(SECOND({0}) AS BIGINT)"),
    _template(INT, "QUARTER({0})", DATE, duck="CAST(QUARTER({0}) AS BIGINT)"),
    _template(INT, "DAYOFYEAR({0})", DATE, duck="CAST(DAYOFYEAR({0}) AS BIGINT)"),
    _template(INT, "WEEK({0})", DATE, duck="CAST(WEEK({0}) AS BIGINT)"),
    _template(INT, "DAYOFWEEK({0})", DATE, duck="(dayofweek({0}) + 1)"),
    _template(INT, "CAST(TIMESTAMPDIFF(SECOND, {0}, {1}) AS BIGINT)", TIMESTAMP, TIMESTAMP,
              duck="((epoch_ms({1}) - epoch_ms({0})) // 1000)"),
    _template(INT, "TIMESTAMPDIFF(DAY, {0}, {1})", DATE, DATE, duck="({1} - {0})"),
    _template(DOUBLE, "({0} + {1})", DOUBLE, DOUBLE),
    _template(DOUBLE, "({0} - {1})", DOUBLE, DOUBLE),
    _template(DOUBLE, "({0} + {1})", INT, DOUBLE),
    _template(DOUBLE, "({0} / 2e0 + 0e0)", DOUBLE),
    _template(DOUBLE, "ABS({0})", DOUBLE),
    _template(DOUBLE, "(FLOOR({0}) + 0e0)", DOUBLE),
    _template(DOUBLE, "(CEIL({0}) + 0e0)", DOUBLE),
    _template(DOUBLE, "(ROUND({0}) + 0e0)", DOUBLE),
    _template(DOUBLE, "CAST({0} AS DOUBLE)", INT),
    _template(DECIMAL, _DEC.format("({0} + {1})"), DECIMAL, DECIMAL),
    _template(DECIMAL, _DEC.format("({0} - {1})"), DECIMAL, DECIMAL),
    _template(DECIMAL, _DEC.format("(CAST({0} AS DECIMAL(8, 2)) * 1.{n}5)"), DECIMAL),
    _template(DECIMAL, "CAST({0} AS DECIMAL(14, 1))", DECIMAL),
    _template(DECIMAL, "CAST({0} AS DECIMAL(16, 2))", INT),
    _template(DECIMAL, "ABS({0})", DECIMAL),
    _template(DECIMAL, "ROUND({0}, 1)", DECIMAL),
    _template(DECIMAL, "FLOOR({0})", DECIMAL),
    _template(DECIMAL, "CEIL({0})", DECIMAL),
    _template(STRING, "UPPER({0})", STRING),
    _template(STRING, "LOWER({0})", STRING),
    _template(STRING, "REVERSE({0})", STRING),
    _template(STRING, "TRIM({0})", STRING),
    _template(STRING, "SUBSTRING({0}, {n} + 1)", STRING),
    _template(STRING, "SUBSTRING({0}, {n} + 1, {n})", STRING),
    _template(STRING, "LEFT({0}, {n})", STRING),
    _template(STRING, "RIGHT({0}, {n})", STRING),
    _template(STRING, "LPAD({0}, {n}, 'ö.')", STRING),
    _template(STRING, "RPAD({0}, {n}, 'ö.')", STRING),
    _template(STRING, "REPLACE({0}, 'b', {1})", STRING, STRING),
    _template(STRING, "REPEAT({0}, {n} % 3)", STRING, duck="repeat({0}, {n} % 3)"),
    _template(STRING, "({0} || {1})", STRING, STRING),
    _template(STRING, "CONCAT({0}, {1}, {w})", STRING, STRING, duck="({0} || {1} || {w})"),
    _template(STRING, "CONCAT_WS('-', {0}, {1})", STRING, STRING),
    _template(STRING, "MD5({0})", STRING),
    _template(STRING, "TRANSLATE({0}, 'abä', 'xy')", STRING),
    _template(STRING, "REGEXP_REPLACE({0}, '[a-c]', 'x')", STRING, duck="regexp_replace({0}, '[a-c]', 'x', 'g')"),
    _template(STRING, "SPLIT_INDEX({0}, ',', {n} % 3)", STRING,
              duck="CASE WHEN {0} <> '' THEN string_split({0}, ',')[{n} % 3 + 1] END"),
    _template(STRING, "CAST({0} AS STRING)", INT, duck="CAST({0} AS VARCHAR)"),
    _template(STRING, "CAST({0} AS STRING)", BOOLEAN, duck="upper(CAST({0} AS VARCHAR))"),
    _template(STRING, "CAST({0} AS STRING)", DATE, duck="CAST({0} AS VARCHAR)"),
    _template(STRING, "CAST(CAST({0} AS TIMESTAMP(3)) AS STRING)", TIMESTAMP,
              duck="strftime({0}, '%Y-%m-%d %H:%M:%S.%g')"),
    _template(STRING, "CAST(" + _DEC + " AS STRING)", DECIMAL, duck="CAST(" + _DEC + " AS VARCHAR)"),
    _template(STRING, "DATE_FORMAT({0}, 'yyyy/MM/dd HH:mm')", TIMESTAMP, duck="strftime({0}, '%Y/%m/%d %H:%M')"),
    *(_template(BOOLEAN, f"({{0}} {op} {{1}})", kind, kind)
      for op in ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM") for kind in KINDS),
    *(_template(BOOLEAN, f"({{0}} {op})", kind)
      for op in ("IS NULL", "IS NOT NULL") for kind in KINDS),
    *(_template(BOOLEAN, "({0} BETWEEN {1} AND {2})", kind, kind, kind) for kind in KINDS if kind != BOOLEAN),
    *(_template(BOOLEAN, "({0} NOT IN ({1}, {2}))", kind, kind, kind) for kind in KINDS if kind != BOOLEAN),
    *(_template(BOOLEAN, text, BOOLEAN, BOOLEAN) for text in ("({0} AND {1})", "({0} OR {1})") for _ in range(6)),
    *(_template(BOOLEAN, text, BOOLEAN)
      for text in ("(NOT {0})", "({0} IS TRUE)", "({0} IS NOT TRUE)", "({0} IS FALSE)", "({0} IS NOT FALSE)")),
    _template(BOOLEAN, "({0} IN (1, -3, NULL))", INT),
    _template(BOOLEAN, "({0} IN ('a', '日本', 'x_y'))", STRING),
    _template(BOOLEAN, "({0} LIKE {1})", STRING, STRING),
    _template(BOOLEAN, "({0} LIKE 'a%')", STRING),
    _template(BOOLEAN, "({0} NOT LIKE '%b_')", STRING),
    _template(BOOLEAN, "REGEXP({0}, '[a-c]+')", STRING, duck="regexp_matches({0}, '[a-c]+')"),
    _template(BOOLEAN, "STARTSWITH({0}, {1})", STRING, STRING, duck="starts_with({0}, {1})"),
    _template(BOOLEAN, "ENDSWITH({0}, {1})", STRING, STRING, duck="suffix({0}, {1})"),
    _template(DATE, "({0} + INTERVAL '{n}' DAY)", DATE, duck="CAST({0} + INTERVAL '{n}' DAY AS DATE)"),
    _template(DATE, "({0} - INTERVAL '{n}' MONTH)", DATE, duck="CAST({0} - INTERVAL '{n}' MONTH AS DATE)"),
    _template(DATE, "CAST({0} AS DATE)", TIMESTAMP),
    _template(DATE, "FLOOR({0} TO MONTH)", DATE, duck="CAST(date_trunc('month', {0}) AS DATE)"),
    _template(TIMESTAMP, "({0} + INTERVAL '{n}' SECOND)", TIMESTAMP),
    _template(TIMESTAMP, "({0} - INTERVAL '{n}' HOUR)", TIMESTAMP),
    _template(TIMESTAMP, "TIMESTAMPADD(MINUTE, {n}, {0})", TIMESTAMP, duck="({0} + INTERVAL '{n}' MINUTE)"),
    _template(TIMESTAMP, "FLOOR({0} TO MINUTE)", TIMESTAMP, duck="date_trunc('minute', {0})"),
    _template(TIMESTAMP, "FLOOR({0} TO HOUR)", TIMESTAMP, duck="date_trunc('hour', {0})"),
    _template(TIMESTAMP, "CAST({0} AS TIMESTAMP(3))", DATE, duck="CAST({0} AS TIMESTAMP)"),
]  # fmt: skip


def _every_kind(kind: str) -> list[Template]:
    null_if_any = "CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN "
    extremes = (
        []
        if kind == BOOLEAN
        else [
            _template(kind, f"{name}({{0}}, {{1}})", kind, kind, duck=f"{null_if_any}{name.lower()}({{0}}, {{1}}) END")
            for name in ("GREATEST", "LEAST")
        ]
    )
    return [
        *extremes,
        _template(kind, "CASE WHEN {0} THEN {1} ELSE {2} END", BOOLEAN, kind, kind),
        _template(kind, "CASE WHEN {0} THEN {1} WHEN {2} THEN {3} END", BOOLEAN, kind, BOOLEAN, kind),
        _template(kind, "CASE {0} WHEN 1 THEN {1} WHEN {2} THEN {3} ELSE {1} END", INT, kind, INT, kind),
        _template(kind, "COALESCE({0}, {1})", kind, kind),
        _template(kind, "IFNULL({0}, {1})", kind, kind),
        _template(kind, "NULLIF({0}, {1})", kind, kind),
        _template(kind, "IF({0}, {1}, {2})", BOOLEAN, kind, kind, duck="CASE WHEN {0} THEN {1} ELSE {2} END"),
    ]


TEMPLATES: Mapping[str, Sequence[Template]] = {
    kind: [t for t in _TEMPLATES if t.kind == kind] + _every_kind(kind) for kind in KINDS
}


def quoted(word: str) -> str:
    """A word as a SQL literal.

    >>> quoted("a'b")
    "'a''b'"
    """
    return "'" + word.replace("'", "''") + "'"


class Expressions:
    """Makes expressions over columns of known kinds."""

    def __init__(self, rng: random.Random, columns: Mapping[str, str]) -> None:
        self._rng = rng
        self._columns = columns

    def make(self, kind: str, depth: int = 2) -> Text:
        """An expression of a kind, at most `depth` templates deep."""
        if depth == 0 or self._rng.random() < 0.15:
            return self._atom(kind)
        template = self._rng.choice(TEMPLATES[kind])
        parts = [self.make(part, depth - 1) for part in template.parts]
        digit, word = str(self._rng.randrange(10)), quoted(self._rng.choice(WORDS))
        return Text(
            template.ours.format(*(p.ours for p in parts), n=digit, w=word),
            template.duck.format(*(p.duck for p in parts), n=digit, w=word),
        )

    def _atom(self, kind: str) -> Text:
        names = [name for name, of in self._columns.items() if of == kind]
        if kind == DECIMAL:
            names += [name for name, of in self._columns.items() if of == WIDE]
        if names and self._rng.random() < 0.75:
            name = self._rng.choice(names)
            text = _DEC.format(name) if self._columns[name] == WIDE else name
            return Text(text, text)
        if self._rng.random() < 0.1:
            ours, duck = CASTS[kind]
            return Text(f"CAST(NULL AS {ours})", f"CAST(NULL AS {duck})")
        text = self.literal(kind)
        return Text(text, text)

    def literal(self, kind: str) -> str:
        """A constant, the same in both dialects."""
        pick = self._rng.choice
        match kind:
            case "BIGINT":
                return pick(("0", "1", "2", "7", "(-3)", "100"))
            case "DOUBLE":
                return pick(("0e0", "1.5e0", "(-2.25e0)", "10e0"))
            case "DECIMAL":
                return pick(("0.00", "1.25", "(-3.5)", "99.99", "0.05"))
            case "BOOLEAN":
                return pick(("TRUE", "FALSE"))
            case "DATE":
                return pick(("DATE '2024-02-29'", "DATE '1969-12-31'", "DATE '2023-01-01'"))
            case "TIMESTAMP":
                return pick(("TIMESTAMP '2024-03-01 10:00:30.500'", "TIMESTAMP '1969-12-31 23:59:59.999'"))
            case _:
                return quoted(pick(WORDS))
