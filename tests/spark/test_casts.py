"""Casts between all types on Spark: the values, the errors and the NULLs of flowrun's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flowrun.core.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TINYINT,
    DataType,
    TypeRoot,
    array,
    char,
    decimal,
    map_of,
    row,
    time,
    timestamp,
    timestamp_ltz,
    varbinary,
    varchar,
)  # fmt: skip
from flowrun.functions.coercion import castable
from flowrun.plan.expressions import Cast, Expression
from flowrun.spark.casts import cast_text
from flowrun.spark.expressions import spark_text
from flowrun.spark.frame import NotNative, quoted
from tests.spark.differential import differences
from tests.spark.grids import GRIDS, SCHEMA, column

if TYPE_CHECKING:
    from tests.spark.grid_fixture import Grid

TARGETS = (
    BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, decimal(10, 2), decimal(5, 0), decimal(38, 18), decimal(3,
    3), STRING, varchar(3),
    char(3), BYTES, varbinary(2), DataType(TypeRoot.BINARY, length=3), DATE, time(0), time(3), time(6), time(9), timestamp(0), timestamp(2),
    timestamp(3), timestamp(6), timestamp(9), timestamp_ltz(0), timestamp_ltz(3), timestamp_ltz(6), timestamp_ltz(9), array(BIGINT),
    array(STRING), array(TINYINT), map_of(STRING, TINYINT), map_of(STRING, STRING), row(("a", STRING), ("b", TINYINT)),
    row(("a", char(1)), ("b", BIGINT)),
)  # fmt: skip
COLUMNS = [quoted(name) for name in SCHEMA.names]


def casts(*, safe: bool) -> list[tuple[str, Expression]]:
    """Every cast that exists and that is native, by grid and target."""
    found = []
    for name, (given, _) in GRIDS.items():
        for wanted in TARGETS:
            if not castable(given, wanted) or (safe and not (given.is_character or given.is_nested or given == DOUBLE)):
                continue
            expression = Cast(wanted, column(name), safe)
            try:
                spark_text(expression, COLUMNS)
            except NotNative:
                continue
            found.append((f"{'TRY_' * safe}CAST({name} AS {wanted})", expression))
    return found


@pytest.mark.parametrize("safe", [False, True], ids=["CAST", "TRY_CAST"])
def test_casts_give_what_flowrun_gives(safe: bool, grid: Grid) -> None:
    cases = casts(safe=safe)
    assert len(cases) > (150 if safe else 450)
    assert differences(cases, grid.values, grid.first, SCHEMA, chunk=150) == []


def test_casts_that_change_nothing_cost_nothing():
    assert cast_text("`x`", char(3), STRING) == "`x`"
    assert cast_text("`x`", timestamp(0), timestamp(3)) == "`x`"
    assert cast_text("`x`", varchar(3), varchar(5)) == "`x`"
    assert cast_text("`x`", BIGINT, BIGINT, True) == "`x`"


@pytest.mark.parametrize(
    ("given", "wanted", "reason"),
    [
        (STRING, timestamp(9), "nanoseconds"),
        (timestamp(9), STRING, "nanoseconds"),
        (INT, timestamp(3), "no cast of INT to TIMESTAMP"),
        (array(INT), array(DATE), "no cast of ARRAY<INT> to ARRAY<DATE>"),
    ],
)
def test_what_spark_cannot_cast_is_hosted(given, wanted, reason):
    with pytest.raises(NotNative, match=reason):
        cast_text("`x`", given, wanted)
