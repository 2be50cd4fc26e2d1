"""VARIANT: what PARSE_JSON keeps of JSON, and what is found in it; the values are those of Flink 2.3."""

from __future__ import annotations

import pyarrow as pa
import pytest

from flowrun.core.types import STRING, VARIANT
from flowrun.errors import DataError, ExpressionError
from flowrun.state.key_groups import hash_columns
from tests.frontend.sql.expressions.evaluation import constant
from tests.functions.kernel_calls import Constant, call

DOCUMENT = '{"a":1,"b":[1,2,{"c":"d"}],"e":null}'


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (' [ 1 , "a\\u00e4\\n\\/" , {"z":1,"y":{}, "":[]} ] ', '[1,"aä\\n/",{"":[],"y":{},"z":1}]'),
        (
            '{"a":1.50,"b":1e3,"c":1E-7,"e":0.1,"g":-0.0,"h":100.00}',
            '{"a":1.5,"b":1000.0,"c":1.0E-7,"e":0.1,"g":0,"h":100}',
        ),
        ("[1e10, 1.0E+2, 0.00001, 1.5e-10, 12.340, -0]", "[1.0E10,100.0,0.00001,1.5E-10,12.34,0]"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("123456789012345678901234567890.12345678901234567890", "1.2345678901234568E29"),
        ("1234567890123456789012345678901234567890", "1.2345678901234568E39"),
        ("1e400", "Infinity"),
        ("null", "null"),
        ("1 2", "1"),
    ],
)
def test_a_variant_keeps_values_and_not_their_spelling(text: str, kept: str) -> None:
    assert call("PARSE_JSON", text) == kept
    assert call("TRY_PARSE_JSON", text) == kept


@pytest.mark.parametrize("text", ["{", "01", "NaN", "", '{"a":1,}', "abc", '{"a":1,"a":2}'])
def test_what_is_not_json_is_an_error_or_null(text: str) -> None:
    assert call("TRY_PARSE_JSON", text) is None
    with pytest.raises(
        DataError, match=r"PARSE_JSON: (the text is not JSON|JSON has no NaN|an object has a key twice)"
    ):
        call("PARSE_JSON", text)


def test_keys_may_be_there_twice_if_that_is_said() -> None:
    assert call("PARSE_JSON", '{"a":1,"a":2}', True) == '{"a":2}'
    assert call("PARSE_JSON", Constant(None, STRING)) is None


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("['a']", "1"), ("['b'][1]", "1"), ("['b'][3]['c']", '"d"'), ("['zz']", None), ("['e']", "null"),
        ("['b']", '[1,2,{"c":"d"}]'), ("['b'][9]", None), ("['b'][0]", None), ("['b'][-1]", None), ("", DOCUMENT),
    ],
)  # fmt: skip
def test_members_by_name_and_by_place(place: str, found: str | None) -> None:
    assert constant(f"JSON_STRING(PARSE_JSON('{DOCUMENT}'){place})") == found


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("PARSE_JSON('{\"e\": null}')['e'] IS NULL", False),
        ("TYPEOF(TRY_PARSE_JSON('1'))", "VARIANT"),
        ("PARSE_JSON('1') = PARSE_JSON(' 1')", True),
        ("JSON_OBJECT('v' VALUE PARSE_JSON('{\"a\": 1}'))", '{"v":{"a":1}}'),
        ("JSON_STRING(ARRAY[PARSE_JSON('1'), PARSE_JSON('\"x\"')])", '[1,"x"]'),
        ("JSON_STRING(COALESCE(TRY_PARSE_JSON('{'), PARSE_JSON('2')))", "2"),
        ("JSON_STRING(CASE WHEN FALSE THEN PARSE_JSON('1')['a'] END)", None),
    ],
)
def test_variants_in_expressions(text: str, value: object) -> None:
    assert constant(text) == value


@pytest.mark.parametrize("text", ["PARSE_JSON('1')['a']", "PARSE_JSON('{}')[1]"])
def test_a_place_of_another_kind_of_value_is_an_error(text: str) -> None:
    with pytest.raises(DataError, match="a VARIANT is accessed by"):
        constant(text)


def test_a_variant_casts_to_nothing() -> None:
    with pytest.raises(ExpressionError, match="CAST from VARIANT to INT is not possible"):
        constant("CAST(PARSE_JSON('1') AS INT)")


def test_variants_are_keys_like_texts() -> None:
    texts = ["1", None, '{"a":1}', "1"]
    assert hash_columns([pa.array(texts, VARIANT.arrow)]).tolist() == hash_columns([pa.array(texts)]).tolist()
