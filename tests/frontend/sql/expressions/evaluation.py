"""Binds a text over a small table and evaluates it: what most expression tests do."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa

from flowrun.core.schema import Schema
from flowrun.core.type_parser import parse_type
from flowrun.frontend.sql.expressions.from_text import bind_expression
from flowrun.plan.compiler import compile_value

ORDERS = Schema.from_pairs(
    (name, parse_type(type))
    for name, type in {
        "a": "INT",
        "b": "BIGINT",
        "s": "STRING",
        "d": "DECIMAL(10, 2)",
        "x": "DOUBLE",
        "f": "BOOLEAN",
        "ts": "TIMESTAMP(3)",
        "dt": "DATE",
        "tags": "ARRAY<STRING>",
        "attrs": "MAP<STRING, STRING>",
        "device": "ROW<os STRING, version INT>",
    }.items()
)
ROWS = {
    "a": [1, -7, None, 40],
    "b": [10, 3, None, -5],
    "s": ["abc", " 12 ", None, "Ünï☂"],
    "d": [Decimal("10.13"), Decimal("-1.55"), None, Decimal("0.00")],
    "x": [1.5, -2.25, None, 1e10],
    "f": [True, False, None, True],
    "ts": [
        dt.datetime(2024, 1, 31, 10, 0, 0, 123000),
        dt.datetime(1969, 12, 31, 23, 59, 59),
        None,
        dt.datetime(2024, 2, 29),
    ],
    "dt": [dt.date(2024, 1, 31), dt.date(1960, 2, 29), None, dt.date(2024, 3, 1)],
    "tags": [["u", "v"], [], None, ["z"]],
    "attrs": [[("k", "v")], [], None, [("k", None), ("q", "w")]],
    "device": [{"os": "ios", "version": 1}, {"os": None, "version": None}, None, {"os": "web", "version": 5}],
}


def batch_of(schema: Schema, rows: dict[str, list[object]]) -> pa.RecordBatch:
    """A batch with these column values."""
    return pa.RecordBatch.from_arrays([pa.array(rows[f.name], f.type.arrow) for f in schema], schema=schema.arrow)


TABLE = batch_of(ORDERS, ROWS)


def evaluate(text: str, schema: Schema = ORDERS, batch: pa.RecordBatch = TABLE) -> list[object]:
    """The values of an expression, one a row."""
    values: list[object] = compile_value(bind_expression(text, schema))(batch).to_pylist()
    return values


def constant(text: str) -> object:
    """The value of an expression without columns."""
    return evaluate(text)[0]


def type_of(text: str, schema: Schema = ORDERS) -> str:
    """The SQL type of an expression."""
    return str(bind_expression(text, schema).type)
