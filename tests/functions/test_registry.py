"""The registry: every record is complete, pickles, and renders its Spark text."""

from __future__ import annotations

import pickle
import re

import pytest

from flowrun.core.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    STRING,
    array,
    decimal,
    map_of,
    time,
    timestamp,
)
from flowrun.errors import ExpressionError, InternalError
from flowrun.functions.aggregates.spark_texts import SparkRows
from flowrun.functions.contract import Argument
from flowrun.functions.operators.operators import OPERATORS
from flowrun.functions.registry import (
    aggregate,
    aggregate_functions,
    index_by_name,
    scalar,
    scalar_functions,
    scalar_names,
)
from flowrun.functions.strings.strings import STRINGS

EVERY_KIND = [
    Argument(STRING), Argument(INT), Argument(DOUBLE), Argument(BIGINT), Argument(decimal(10, 2)), Argument(BOOLEAN),
    Argument(timestamp(3)), Argument(DATE), Argument(time(0)), Argument(array(INT)), Argument(array(STRING)),
    Argument(map_of(STRING, INT)), Argument(BYTES),
]  # fmt: skip
WORDS = ["MINUTE", "HOST", "NULL", "VALUE", "TRUE", "WITHOUT", "yyyy", "$", "UTC", "UTF-8", "-", "a", ""]
LITERALS = [Argument(STRING, w, True) for w in WORDS] + [
    Argument(INT, 1, True),
    Argument(INT, 3, True),
    Argument(INT, 256, True),
]


NAMED = [f for f in scalar_functions() if f not in OPERATORS]


@pytest.mark.parametrize("function", [*scalar_functions(), *aggregate_functions()], ids=lambda f: f.name)
def test_every_record_says_what_it_does(function):
    assert function.name == function.name.upper()
    assert function.usage
    assert function.doc.endswith(".")


@pytest.mark.parametrize("function", [*NAMED, *aggregate_functions()], ids=lambda f: f.name)
def test_every_named_function_pickles(function):
    assert pickle.loads(pickle.dumps(function)).name == function.name


@pytest.mark.parametrize("function", NAMED, ids=lambda f: f.name)
def test_every_rule_answers_or_refuses_clearly_and_every_spark_text_renders(function):
    accepted = 0
    for arguments in _calls():
        try:
            bound = function.type_rule(arguments)
        except ExpressionError:
            continue  # anything else that is raised fails the test
        accepted += 1
        assert len(bound.arguments) == len(arguments)
        assert bound.result.arrow is not None
        if function.spark is not None:
            texts = [_text(a, i) for i, a in enumerate(arguments)]
            rendered = function.spark(texts, bound.arguments, bound.result)
            assert rendered is None or _well_formed(rendered), f"{function.name}: {rendered}"
    assert accepted or function.name in ROW_SHAPED, f"no call of {function.name} was accepted"


ROW_SHAPED = {"JSON_OBJECT", "JSON_ARRAY", "JSON_OBJECT_OF"}


def _calls():
    yield []
    for first in (*EVERY_KIND, *LITERALS):
        yield [first]
        for second in (*EVERY_KIND, *LITERALS):
            yield [first, second]
    kinds = [
        Argument(STRING),
        Argument(INT),
        Argument(timestamp(3)),
        LITERALS[0],
        LITERALS[6],
        LITERALS[7],
        LITERALS[-2],
    ]
    for first in kinds:
        for second in kinds:
            for third in kinds:
                yield [first, second, third]
    yield [Argument(array(INT)), Argument(INT), Argument(INT)]


def _text(argument, place):
    if not argument.is_literal:
        return f"c{place}"
    return f"'{argument.literal}'" if isinstance(argument.literal, str) else str(argument.literal)


def _well_formed(text):
    bare = re.sub(r"'(?:[^'\\]|\\.)*'", "''", text)
    return bare.count("(") == bare.count(")") and "{" not in bare and not bare.startswith(" ")


def test_look_up_ignores_case_and_knows_aliases():
    assert scalar("Char_Length") is scalar("CHARACTER_LENGTH")
    assert scalar("substr").name == "SUBSTRING"
    assert aggregate("stddev").name == "STDDEV_SAMP"
    assert scalar("count") is None
    assert aggregate("upper") is None


def test_a_name_registered_twice_is_an_error():
    with pytest.raises(InternalError, match="UPPER is registered twice"):
        index_by_name([*STRINGS, *STRINGS[:1], pickle.loads(pickle.dumps(STRINGS[0]))])


def test_functions_of_the_recorded_cases_exist():
    known = set(scalar_names()) | {n for f in aggregate_functions() for n in (f.name, *f.aliases)}
    asked = {
        "UPPER LOWER TRIM CHAR_LENGTH SUBSTRING CONCAT_WS REPLACE POSITION SPLIT_INDEX REGEXP_EXTRACT REGEXP_REPLACE LPAD REVERSE",
        "INITCAP MD5 ROUND FLOOR CEIL ABS MOD POWER SIGN GREATEST DATE_FORMAT EXTRACT HOUR TIMESTAMPADD TIMESTAMPDIFF JSON_VALUE",
        "JSON_EXISTS JSON_QUERY CARDINALITY COUNT SUM AVG MIN MAX FIRST_VALUE LAST_VALUE LISTAGG STDDEV_POP VAR_SAMP",
    }
    assert {name for line in asked for name in line.split()} <= known


def test_some_spark_texts():
    def spark(name, texts, types, result):
        return scalar(name).spark(texts, types, result)

    assert spark("SUBSTRING", ["c0", "2", "3"], [STRING, BIGINT, BIGINT], STRING) == "substring(c0, 2, 3)"
    assert spark("SUBSTRING", ["c0", "-2"], [STRING, BIGINT], STRING).startswith("CASE WHEN char_length(c0) < 2")
    assert (
        spark("REGEXP_REPLACE", ["c0", "'a'", "'$1'"], [STRING] * 3, STRING) == r"regexp_replace(c0, 'a', '\\\u00241')"
    )
    assert spark("REGEXP_REPLACE", ["c0", "'a*'", "''"], [STRING] * 3, STRING) is None
    assert spark("REGEXP_EXTRACT", ["c0", "'a(b)?'", "1"], [STRING, STRING, INT], STRING) is None
    assert (
        spark("FLOOR", ["ts", "'MINUTE'"], [timestamp(3), STRING], timestamp(3))
        == "CAST(date_trunc('MINUTE', ts) AS TIMESTAMP_NTZ)"
    )
    assert (
        spark("ROUND", ["c0", "1"], [decimal(10, 2), BIGINT], decimal(10, 1)) == "CAST(round(c0, 1) AS DECIMAL(10, 1))"
    )
    once, over = SparkRows(distinct=True), SparkRows(where="f", window="w")
    assert aggregate("AVG").spark(once, ["c"], [INT], INT) == "CAST(sum(DISTINCT c) DIV count(DISTINCT c) AS INT)"
    assert aggregate("COUNT").spark(SparkRows(), [], [], BIGINT) == "count(*)"
    assert aggregate("COUNT").spark(over, ["c"], [INT], BIGINT) == "count(CASE WHEN f THEN c END) OVER (w)"
