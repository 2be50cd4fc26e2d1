"""Types meet, widen and convert as Flink's documentation says."""

import pytest

from flowrun.core import types as t
from flowrun.core.types import BIGINT, BOOLEAN, DATE, DOUBLE, FLOAT, INT, NULL, SMALLINT, STRING, TINYINT
from flowrun.functions.coercion import (
    adjusted_decimal,
    as_decimal,
    castable,
    common_type,
    decimal_add,
    decimal_div,
    decimal_mod,
    decimal_mul,
    decimal_round,
    implicitly_castable,
)


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([TINYINT, SMALLINT, INT], INT),
        ([INT, NULL], INT),
        ([NULL, NULL], NULL),
        ([BIGINT, t.decimal(10, 2)], t.decimal(21, 2)),
        ([t.decimal(10, 2), t.decimal(5, 4)], t.decimal(12, 4)),
        ([t.decimal(38, 2), t.decimal(10, 6)], t.decimal(38, 2)),
        ([t.decimal(10, 2), FLOAT], DOUBLE),
        ([BIGINT, FLOAT], FLOAT),
        ([FLOAT, DOUBLE], DOUBLE),
        ([t.char(7), t.char(2)], t.varchar(7)),
        ([t.char(7), STRING], STRING),
        ([t.char(3), t.char(3)], t.char(3)),
        ([DATE, t.timestamp(3)], t.timestamp(3)),
        ([t.timestamp(0), t.timestamp_ltz(3)], t.timestamp_ltz(3)),
        ([t.time(0), t.timestamp(3)], None),
        ([INT, STRING], None),
        ([BOOLEAN, INT], None),
        ([t.array(INT), t.array(BIGINT)], t.array(BIGINT)),
        ([t.row(("a", INT)), t.row(("b", DOUBLE))], t.row(("a", DOUBLE))),
        ([t.array(INT), t.array(STRING)], None),
        ([], None),
    ],
)
def test_the_common_type_is_the_narrowest_that_holds_all(types, expected):
    assert common_type(types) == expected


def test_decimal_results_have_flinks_precision_and_scale():
    price, rate = t.decimal(10, 2), t.decimal(12, 6)
    assert as_decimal(INT) == t.decimal(10, 0)
    assert decimal_add(price, rate) == t.decimal(15, 6)
    assert decimal_mul(price, rate) == t.decimal(23, 8)
    assert decimal_div(price, rate) == t.decimal(29, 15)
    assert decimal_mod(price, rate) == t.decimal(12, 6)
    assert decimal_mul(t.decimal(38, 10), t.decimal(38, 10)) == t.decimal(38, 6)
    assert adjusted_decimal(40, 4) == t.decimal(38, 4)
    assert decimal_round(t.decimal(38, 2), -3) == t.decimal(37, 0)
    with pytest.raises(ValueError, match="DOUBLE is not an exact numeric type"):
        as_decimal(DOUBLE)


@pytest.mark.parametrize(
    ("source", "target", "implicit", "explicit"),
    [
        (INT, BIGINT, True, True),
        (BIGINT, INT, False, True),
        (INT, t.decimal(5, 0), True, True),
        (DOUBLE, t.decimal(5, 0), True, True),
        (t.decimal(5, 0), INT, False, True),
        (DOUBLE, FLOAT, False, True),
        (STRING, INT, False, True),
        (INT, STRING, False, True),
        (t.char(3), STRING, True, True),
        (STRING, t.varchar(3), True, True),
        (BOOLEAN, INT, False, True),
        (INT, BOOLEAN, False, True),
        (DOUBLE, BOOLEAN, False, True),
        (DATE, t.timestamp(3), True, True),
        (t.timestamp(3), DATE, True, True),
        (INT, t.timestamp(3), False, False),
        (t.timestamp(3), BIGINT, False, False),
        (NULL, t.array(INT), True, True),
        (t.array(INT), t.array(BIGINT), True, True),
        (t.array(BIGINT), t.array(INT), False, True),
        (t.row(("a", INT)), t.row(("b", STRING)), False, True),
        (t.row(("a", INT)), t.row(("a", INT), ("b", INT)), False, False),
        (t.map_of(STRING, INT), STRING, False, True),
        (STRING, t.BYTES, False, True),
        (INT, t.BYTES, False, False),
    ],
)
def test_casts_exist_as_in_flink(source, target, implicit, explicit):
    assert implicitly_castable(source, target) is implicit
    assert castable(source, target) is explicit
