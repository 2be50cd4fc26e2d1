"""Types: the SQL text, the Arrow column, and the way back."""

import pyarrow as pa
import pytest

from flowrun.core import types as t

EXAMPLES = [
    (t.BOOLEAN, "BOOLEAN", pa.bool_()),
    (t.INT, "INT", pa.int32()),
    (t.BIGINT, "BIGINT", pa.int64()),
    (t.decimal(10, 2), "DECIMAL(10, 2)", pa.decimal128(10, 2)),
    (t.STRING, "STRING", pa.string()),
    (t.varchar(7), "VARCHAR(7)", pa.string()),
    (t.char(5), "CHAR(5)", pa.string()),
    (t.BYTES, "BYTES", pa.binary()),
    (t.DATE, "DATE", pa.date32()),
    (t.time(0), "TIME(0)", pa.time32("ms")),
    (t.timestamp(3), "TIMESTAMP(3)", pa.timestamp("ms")),
    (t.timestamp(6), "TIMESTAMP(6)", pa.timestamp("us")),
    (t.timestamp(9), "TIMESTAMP(9)", pa.timestamp("ns")),
    (t.timestamp_ltz(3), "TIMESTAMP_LTZ(3)", pa.timestamp("ms", "UTC")),
    (t.array(t.STRING), "ARRAY<STRING>", pa.list_(pa.string())),
    (t.map_of(t.STRING, t.INT), "MAP<STRING, INT>", pa.map_(pa.string(), pa.int32())),
    (
        t.row(("os", t.STRING), ("version", t.INT)),
        "ROW<os STRING, version INT>",
        pa.struct([("os", pa.string()), ("version", pa.int32())]),
    ),
]


@pytest.mark.parametrize(("kind", "text", "arrow"), EXAMPLES, ids=[e[1] for e in EXAMPLES])
def test_a_type_has_one_text_and_one_arrow_type(kind: t.DataType, text: str, arrow: pa.DataType) -> None:
    assert str(kind) == text
    assert kind.arrow == arrow


@pytest.mark.parametrize(
    "kind", [e[0] for e in EXAMPLES if e[0].root.value not in ("CHAR", "TIME") and e[0].length is None], ids=str
)
def test_arrow_types_come_back_as_the_widest_sql_type(kind: t.DataType) -> None:
    assert t.from_arrow(kind.arrow) == kind


def test_arrow_types_without_a_sql_type_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="month_day_nano"):
        t.from_arrow(pa.month_day_nano_interval())


def test_unsigned_and_foreign_types_widen() -> None:
    assert t.from_arrow(pa.uint64()) == t.decimal(20, 0)
    assert t.from_arrow(pa.uint32()) == t.BIGINT
    assert t.from_arrow(pa.dictionary(pa.int8(), pa.string())) == t.STRING
    assert t.from_arrow(pa.large_string()) == t.STRING


@pytest.mark.parametrize(("precision", "scale"), [(0, 0), (39, 0), (5, 6), (5, -1)])
def test_decimals_out_of_range_are_refused(precision: int, scale: int) -> None:
    with pytest.raises(ValueError, match="precision must be"):
        t.decimal(precision, scale)
