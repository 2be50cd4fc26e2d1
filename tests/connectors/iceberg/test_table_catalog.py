"""What an Iceberg catalog says of its namespaces, tables and columns."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")

from pyiceberg import types
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform

from flowrun.api.table_catalog import TableCatalog
from flowrun.connectors.catalogs import catalog_type_named
from flowrun.connectors.iceberg.table_catalog import column_type
from flowrun.core.options import parse_options
from flowrun.errors import ConnectorError
from tests.connectors.iceberg.rest_catalog import TOKEN, rest_catalog
from tests.connectors.iceberg.tables import catalog as stored
from tests.connectors.iceberg.tables import settings

pytestmark = pytest.mark.exhaustive


def opened(folder: Path, **more: object) -> TableCatalog:
    kind = catalog_type_named("iceberg")
    given = {k: v for k, v in settings(folder, **more).items() if k in ("catalog-type", "uri", "warehouse", "token")}
    options, problems = parse_options(kind.options, given, "catalog")
    assert problems == []
    return kind.open("test", options)


@pytest.mark.parametrize(
    ("type", "expected"),
    [
        (types.BooleanType(), "BOOLEAN"),
        (types.IntegerType(), "INT"),
        (types.LongType(), "BIGINT"),
        (types.FloatType(), "FLOAT"),
        (types.DoubleType(), "DOUBLE"),
        (types.DecimalType(9, 3), "DECIMAL(9, 3)"),
        (types.DateType(), "DATE"),
        (types.TimeType(), "TIME(6)"),
        (types.TimestampType(), "TIMESTAMP(6)"),
        (types.TimestamptzType(), "TIMESTAMP_LTZ(6)"),
        (types.TimestampNanoType(), "TIMESTAMP(9)"),
        (types.TimestamptzNanoType(), "TIMESTAMP_LTZ(9)"),
        (types.StringType(), "STRING"),
        (types.BinaryType(), "BYTES"),
        (types.FixedType(16), "BYTES"),
        (types.ListType(1, types.LongType()), "ARRAY<BIGINT>"),
        (types.MapType(1, types.StringType(), 2, types.LongType()), "MAP<STRING, BIGINT>"),
        (types.StructType(types.NestedField(1, "a b", types.LongType())), "ROW<a b BIGINT>"),
        (types.UUIDType(), "None"),
        (types.GeometryType(), "None"),
        (types.UnknownType(), "None"),
        (types.ListType(1, types.UUIDType()), "None"),
        (types.MapType(1, types.StringType(), 2, types.UUIDType()), "None"),
        (types.StructType(types.NestedField(1, "a", types.UUIDType())), "None"),
    ],
)
def test_types(type: types.IcebergType, expected: str) -> None:
    assert str(column_type(type)) == expected


def test_what_is_required_inside_of_a_type_is_kept() -> None:
    list_type = column_type(types.ListType(1, types.LongType(), element_required=True))
    struct = column_type(types.StructType(types.NestedField(1, "a", types.LongType(), required=True)))
    assert list_type is not None
    assert struct is not None
    assert list_type.required == struct.required == (True,)


COLUMNS = (
    types.NestedField(1, "id", types.LongType(), required=True, doc="its number"),
    types.NestedField(2, "at", types.TimestampType()),
    types.NestedField(3, "shop", types.StringType(), required=True),
)


def test_namespaces_tables_keys_and_partitions(tmp_path: Path) -> None:
    inner = stored(tmp_path)
    for namespace in ("bank", "bank.eu", "bank.eu.north", "empty"):
        inner.create_namespace_if_not_exists(namespace)
    keyed = Schema(*COLUMNS, identifier_field_ids=[3, 1])
    inner.create_table("bank.eu.keyed", keyed, properties={"write.upsert.enabled": "false", "comment": "it's"})
    by_shop = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "shop"))
    inner.create_table("bank.by_shop", Schema(*COLUMNS), partition_spec=by_shop)
    by_day = PartitionSpec(*by_shop.fields, PartitionField(2, 1001, DayTransform(), "day"))
    inner.create_table("bank.by_day", Schema(*COLUMNS), partition_spec=by_day)
    catalog = opened(tmp_path)
    assert sorted(catalog.databases()) == ["bank", "bank.eu", "bank.eu.north", "empty"]
    assert sorted(catalog.tables("bank") or ()) == ["by_day", "by_shop"]
    assert (catalog.tables("empty"), catalog.tables("nowhere"), catalog.views("bank")) == ([], None, ())
    found = catalog.table("bank.eu", "keyed")
    assert found is not None
    assert (found.primary_key, found.comment, dict(found.options)) == (
        ("id", "shop"),
        "it's",
        {"upsert-enabled": "false"},
    )
    assert [(c.name, c.nullable, c.comment) for c in found.columns] == [
        ("id", False, "its number"), ("at", True, None), ("shop", False, None),
    ]  # fmt: skip
    by_shop_found, by_day_found = catalog.table("bank", "by_shop"), catalog.table("bank", "by_day")
    assert by_shop_found is not None
    assert by_day_found is not None
    assert by_shop_found.partition_keys == ("shop",)
    assert by_day_found.partition_keys == ()  # PARTITIONED BY has no words for days
    assert catalog.table("bank", "keyed") is None
    assert catalog.table("nowhere", "keyed") is None


def test_a_rest_catalog(tmp_path: Path) -> None:
    with rest_catalog(tmp_path) as server:
        for namespace in ("bank", "bank.eu"):
            server.inner.create_namespace_if_not_exists(namespace)
        server.inner.create_table("bank.t", Schema(*COLUMNS))
        catalog = opened(tmp_path, **{"catalog-type": "rest", "uri": server.uri, "warehouse": None, "token": TOKEN})
        found = catalog.table("bank", "t")
        assert found is not None
        assert [c.name for c in found.columns] == ["id", "at", "shop"]
        assert catalog.table("bank", "u") is None
        assert sorted(catalog.databases()) == ["bank", "bank.eu"]
        assert (catalog.tables("bank"), catalog.tables("nowhere")) == (["t"], None)


def test_a_catalog_that_cannot_be_reached(tmp_path: Path) -> None:
    rest = {"catalog-type": "rest", "uri": "http://127.0.0.1:1", "warehouse": None, "token": "not-a-token"}
    with pytest.raises(ConnectorError, match=r"Iceberg catalog 'test' \(rest\) cannot be reached") as raised:
        opened(tmp_path, **rest).databases()
    assert "not-a-token" not in str(raised.value)
