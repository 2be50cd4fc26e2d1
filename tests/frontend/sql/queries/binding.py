"""A small catalog, and queries bound against it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from flowrun.core.schema import Field, Schema
from flowrun.core.type_parser import parse_type
from flowrun.errors import PipelineError
from flowrun.frontend.diagnostics import Diagnostics
from flowrun.frontend.source_text import SourceText
from flowrun.frontend.sql.catalog import Catalog, CatalogTable, CatalogView
from flowrun.frontend.sql.queries.from_text import BoundQuery, bind_query
from flowrun.frontend.sql.queries.statement_context import QueryContext
from flowrun.frontend.sql.spans import SeveralErrors
from flowrun.plan.expressions import ColumnRef
from flowrun.plan.nodes import NodeHints, PlanNode, Scan, TableReference, WatermarkKind, WatermarkSpec

TABLES: dict[str, dict[str, str]] = {
    "sales": {
        "id": "BIGINT NOT NULL", "shop": "STRING", "item": "STRING", "price": "DECIMAL(8, 2)", "pieces": "INT",
        "at": "TIMESTAMP(3)",
    },
    "shops": {"shop": "STRING", "city": "STRING", "opened": "INT"},
    "visits": {
        "visit": "BIGINT NOT NULL", "shop": "STRING", "pages": "ARRAY<STRING>", "facts": "MAP<STRING, INT>",
        "client": "ROW<os STRING, release ROW<major INT, minor INT>>", "lines": "ARRAY<ROW<sku STRING, n INT>>",
        "at": "TIMESTAMP(3)",
    },
}  # fmt: skip
_START = datetime(2024, 5, 1, 12)


def table(name: str, columns: Mapping[str, str]) -> CatalogTable:
    """A table of the catalog; `at` is its event time if it has such a column."""
    fields = []
    for column, text in columns.items():
        fields.append(Field(column, parse_type(text.removesuffix(" NOT NULL")), not text.endswith(" NOT NULL")))
    schema = Schema(tuple(fields))
    return CatalogTable(name, schema, schema, TableReference(name, "memory", {}))


def scan(known: CatalogTable, span: tuple[int, int]) -> Scan:
    """The table's one scan."""
    if known.scan is None:
        columns = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(known.schema))
        time = next((c for c in columns if c.name == "at"), None)
        watermark = None if time is None else WatermarkSpec(WatermarkKind.BOUNDED, time, 1000, column="at")
        known.scan = Scan(known.schema, NodeHints(name=known.name), known.reference, known.schema, columns, watermark)
    return known.scan


def catalog() -> Catalog:
    """The tables above, none read yet."""
    found = Catalog()
    for name, columns in TABLES.items():
        found.relations[name] = table(name, columns)
    return found


def bind(text: str, known: Catalog | None = None, *, offset: int = 0, name: str = "q") -> BoundQuery:
    """A query, bound; `offset` code points of the script come before it."""
    source = SourceText("script.sql", " " * offset + text)
    context = QueryContext(name, source, Diagnostics(source), scan)
    return bind_query(text, offset, known or catalog(), context)


def plan(text: str, known: Catalog | None = None) -> PlanNode:
    """The node of a query."""
    return bind(text, known).node


def view(known: Catalog, name: str, text: str) -> None:
    """CREATE VIEW."""
    known.relations[name] = CatalogView(name, bind(text, known, name=name).node)


def problems(text: str, known: Catalog | None = None) -> str:
    """What the user reads if a query is wrong."""
    source = SourceText("script.sql", text)
    diagnostics = Diagnostics(source)
    try:
        bind_query(text, 0, known or catalog(), QueryContext("q", source, diagnostics, scan))
    except SeveralErrors as errors:
        for error in errors.errors:
            place = source.locate(error.offset, error.offset + error.length)
            diagnostics.error(error.message, place, hint=error.hint)
        return str(PipelineError(diagnostics.found))
    raise AssertionError("the query is right")


def data() -> dict[str, pa.Table]:
    """Rows for the tables: with NULLs, ties, duplicates, and keys that only one side has."""
    shops = ["north", "south", "east", None, "west"]
    items = ["tea", "mug", None, "pot"]
    sales: list[dict[str, Any]] = [
        {
            "id": i,
            "shop": shops[i * 7 % 5],
            "item": items[i * 3 % 4],
            "price": None if i % 11 == 3 else Decimal(i * 37 % 90) / 4,
            "pieces": None if i % 9 == 4 else i % 4,
            "at": _START + timedelta(seconds=i * 13 % 200),
        }
        for i in range(40)
    ]
    places = [
        ("north", "Oslo", 1990),
        ("south", "Rome", 2001),
        ("south", "Bari", None),
        (None, "Nowhere", 1),
        ("far", None, 7),
    ]
    visits: list[dict[str, Any]] = [
        {
            "visit": i,
            "shop": shops[i % 4],
            "pages": [None, [], ["a"], ["a", "b", None]][i % 4],
            "facts": [[("x", i), ("y", None)], [], None][i % 3],
            "client": None if i % 5 == 0 else {"os": ["linux", "mac"][i % 2], "release": {"major": i, "minor": 1}},
            "lines": [{"sku": f"s{i}", "n": i}, {"sku": None, "n": 0}][: i % 3],
            "at": _START + timedelta(seconds=i * 5),
        }
        for i in range(12)
    ]
    rows = {"sales": sales, "shops": [dict(zip(TABLES["shops"], p, strict=True)) for p in places], "visits": visits}
    return {n: pa.Table.from_pylist(r, schema=table(n, TABLES[n]).schema.arrow) for n, r in rows.items()}
