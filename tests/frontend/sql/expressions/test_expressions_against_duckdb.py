"""Random expressions over integers, doubles, texts, dates and truth values give what DuckDB gives, NULLs included.

Where the two dialects differ in spelling (integer division) or meaning (division by zero), the generator writes both forms.
"""

import datetime as dt
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, BOOLEAN, DATE, DOUBLE, STRING
from tests.examples import examples
from tests.frontend.sql.expressions.evaluation import batch_of, evaluate

SCHEMA = Schema.of(a=BIGINT, b=BIGINT, x=DOUBLE, y=DOUBLE, s=STRING, t=STRING, f=BOOLEAN, g=BOOLEAN, d=DATE, e=DATE)


@dataclass(frozen=True)
class Text:
    """One expression in both dialects."""

    ours: str
    duck: str


def both(template: str, *parts: Text, duck: str | None = None) -> Text:
    return Text(template.format(*(p.ours for p in parts)), (duck or template).format(*(p.duck for p in parts)))


def atoms(*texts: str) -> st.SearchStrategy[Text]:
    return st.sampled_from([Text(t, t) for t in texts])


def combine(*choices: tuple[str, str | None, tuple[st.SearchStrategy[Text], ...]]) -> st.SearchStrategy[Text]:
    return st.one_of(
        *(
            st.tuples(*parts).map(lambda found, t=template, d=duck: both(t, *found, duck=d))
            for template, duck, parts in choices
        )
    )


INTS = atoms("a", "b", "0", "1", "-3", "7")
DOUBLES = atoms("x", "y", "0.5e0", "-2e0")
TEXTS = atoms("s", "t", "'a'", "''", "'ab'")
TRUTHS = atoms("f", "g", "TRUE", "FALSE")
DATES = atoms("d", "e", "DATE '2024-02-29'")


def level(ints, doubles, texts, truths, dates):
    def shared(kind):
        return (
            ("CASE WHEN {0} THEN {1} ELSE {2} END", None, (truths, kind, kind)),
            ("CASE WHEN {0} THEN {1} WHEN {2} THEN {3} END", None, (truths, kind, truths, kind)),
            ("COALESCE({0}, {1})", None, (kind, kind)),
            ("NULLIF({0}, {1})", None, (kind, kind)),
        )

    compared = st.one_of(
        *(
            combine(
                *((f"({{0}} {op} {{1}})", None, (kind, kind)) for op in ("=", "<>", "<", "<=", ">", ">=")),
                ("({0} IS DISTINCT FROM {1})", None, (kind, kind)),
                ("({0} IS NOT DISTINCT FROM {1})", None, (kind, kind)),
                ("({0} BETWEEN {1} AND {2})", None, (kind, kind, kind)),
                ("({0} NOT IN ({1}, {2}))", None, (kind, kind, kind)),
                ("({0} IS NULL)", None, (kind,)),
            )
            for kind in (ints, doubles, texts, dates)
        )
    )
    return (
        st.one_of(
            INTS,
            combine(
                ("({0} + {1})", None, (ints, ints)),
                ("({0} - {1})", None, (ints, ints)),
                ("({0} * {1})", None, (INTS, INTS)),
                ("({0} / NULLIF({1}, 0))", "({0} // NULLIF({1}, 0))", (ints, ints)),
                ("({0} % NULLIF({1}, 0))", None, (ints, ints)),
                ("(- {0})", None, (ints,)),
                ("CHAR_LENGTH({0})", "CAST(length({0}) AS BIGINT)", (texts,)),
                *shared(ints),
            ),
        ),
        st.one_of(
            DOUBLES,
            combine(
                ("({0} + {1})", None, (doubles, doubles)),
                ("({0} * {1})", None, (doubles, doubles)),
                ("({0} + {1})", None, (ints, doubles)),
                ("({0} / NULLIF({1}, 0e0))", None, (doubles, doubles)),
                ("CAST({0} AS DOUBLE)", None, (ints,)),
                *shared(doubles),
            ),
        ),
        st.one_of(
            TEXTS,
            combine(
                ("({0} || {1})", None, (texts, texts)),
                ("CAST({0} AS STRING)", "CAST({0} AS VARCHAR)", (ints,)),
                *shared(texts),
            ),
        ),
        st.one_of(
            TRUTHS,
            compared,
            combine(
                ("({0} AND {1})", None, (truths, truths)),
                ("({0} OR {1})", None, (truths, truths)),
                ("(NOT {0})", None, (truths,)),
                ("({0} IS TRUE)", None, (truths,)),
                ("({0} IS NOT FALSE)", None, (truths,)),
                ("({0} IN (1, -3, NULL))", None, (ints,)),
                ("({0} LIKE 'a%')", None, (texts,)),
                ("({0} NOT LIKE '%b_')", None, (texts,)),
                ("({0} LIKE {1})", None, (texts, texts)),
                *shared(truths),
            ),
        ),
        st.one_of(
            DATES,
            combine(("({0} + INTERVAL '3' DAY)", "CAST({0} + INTERVAL '3' DAY AS DATE)", (dates,)), *shared(dates)),
        ),
    )


ONE = level(INTS, DOUBLES, TEXTS, TRUTHS, DATES)
TWO = level(*ONE)
THREE = level(*TWO)
EXPRESSIONS = st.one_of(*TWO, *THREE)

ROWS = st.lists(
    st.tuples(
        *(st.one_of(st.none(), kind) for kind in (
            st.integers(-5, 5), st.sampled_from([-3, 0, 1, 2, 10**6]), st.sampled_from([0.0, 0.5, -2.0, 1e10]), st.floats(-4, 4),
            st.sampled_from(["", "a", "ab", "aüb", "☂"]), st.text("ab%_", max_size=4), st.booleans(), st.booleans(),
            st.dates(dt.date(1960, 1, 1), dt.date(2030, 1, 1)), st.sampled_from([dt.date(2024, 2, 29), dt.date(1969, 12, 31)]),
        ))
    ),
    min_size=1,
    max_size=6,
)  # fmt: skip


@pytest.fixture(scope="module")
def duck():
    with duckdb.connect() as connection:
        yield connection


@examples(250, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.lists(EXPRESSIONS, min_size=1, max_size=4), ROWS)
def test_random_expressions(duck, expressions, rows):
    batch = batch_of(SCHEMA, {f.name: [r[i] for r in rows] for i, f in enumerate(SCHEMA)})
    duck.register("rows_in", pa.Table.from_batches([batch]))
    columns = ", ".join(f"{e.duck} AS c{i}" for i, e in enumerate(expressions))
    found = duck.execute(f"SELECT {columns} FROM rows_in").fetchall()
    for position, expression in enumerate(expressions):
        expected = [row[position] for row in found]
        assert evaluate(expression.ours, SCHEMA, batch) == pytest.approx(expected, nan_ok=True), expression.ours
