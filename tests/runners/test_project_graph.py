"""What tables are outside, by connector, and how pipelines meet there."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.api.connector import PlaceMatching, TablePlace
from flowrun.connectors.registry import BUILT_IN
from flowrun.plan.nodes import TableReference
from flowrun.runners.projects.graph import (
    PipelineNode,
    ProjectGraph,
    TableUse,
    graph_problems,
    meets,
    table_places,
)

PRIVATE = {"blackhole", "datagen", "http", "hybrid", "nexmark", "print", "socket"}
"""Connectors whose tables are nothing that pipelines share; of `hybrid` its parts are."""
KAFKA = {"properties.bootstrap.servers": "B:9092, a:9092"}
POSTGRES = {"hostname": "DB", "database-name": "shop", "table-name": "orders"}
PLACES: dict[str, tuple[dict[str, object], list[str]]] = {
    "filesystem": ({"path": "/lake/orders/"}, ["files /lake/orders"]),
    "delta": ({"table-path": "s3://lake/orders"}, ["files s3://lake/orders"]),
    "iceberg": ({"catalog-name": "c", "uri": "http://cat", "catalog-database": "shop"}, ["iceberg http://cat shop.t"]),
    "memory": ({"table": "m"}, ["memory m"]),
    "kafka": ({**KAFKA, "topic": "x; y"}, ["kafka a:9092,b:9092 x", "kafka a:9092,b:9092 y"]),
    "upsert-kafka": ({**KAFKA, "topic": "x"}, ["kafka a:9092,b:9092 x"]),
    "postgres-cdc": (POSTGRES, ["postgresql://db:5432/shop public.orders"]),
    "jdbc": (
        {"url": "jdbc:postgresql://db/shop?user=u&password=p", "table-name": "orders"},
        ["postgresql://db:5432/shop public.orders"],
    ),
    "redis": ({"url": "redis://u:p@host/2", "key.prefix": "user:"}, ["redis://host:6379/2 user:*"]),
}


def places(connector: str, options: dict[str, object]) -> list[str]:
    return [str(place) for place in table_places(TableReference("t", connector, options))]


@pytest.mark.parametrize("connector", sorted(BUILT_IN))
def test_every_connector_says_what_its_tables_are(connector: str) -> None:
    if connector in PRIVATE:
        assert connector == "hybrid" or places(connector, {}) == []
        return
    options, expected = PLACES[connector]
    assert places(connector, options) == expected


def test_files_of_databases_are_known_by_their_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert places("jdbc", {"url": "jdbc:duckdb:shop.db", "table-name": "t"}) == [f"duckdb {tmp_path / 'shop.db'} t"]
    assert places("filesystem", {"path": "out"}) == [f"files {tmp_path / 'out'}"]


def test_a_hybrid_table_is_what_its_parts_are() -> None:
    options: dict[str, object] = {
        "source-identifiers": "old,new",
        "old.connector": "filesystem",
        "old.path": "/lake/orders",
        "new.connector": "kafka",
        "new.topic": "orders",
        "new.properties.bootstrap.servers": "b",
    }
    assert places("hybrid", options) == ["files /lake/orders", "kafka b orders"]


@pytest.mark.parametrize(
    ("read", "written", "expected"),
    [
        ("/lake/orders", "/lake/orders", True),
        ("/lake/orders/*.json", "/lake/orders", True),
        ("/lake/orders/day=1", "/lake/orders", True),
        ("/lake", "/lake/orders", True),
        ("/lake/**/x", "/lake/orders/new", True),
        ("/lake/*/new", "/lake/orders/new", True),
        ("/lake/orders", "/lake/orders2", False),
        ("/lake/a*", "/lake/orders", False),
        ("s3://lake/a", "s3://lake/b", False),
    ],
)
def test_paths_meet(read: str, written: str, expected: bool) -> None:
    files = [TablePlace("files", name, PlaceMatching.PATH) for name in (read, written)]
    assert meets(*files) is expected


def test_a_pattern_of_topics_meets_topics_of_its_servers() -> None:
    pattern = TablePlace("kafka b", "orders-.*", PlaceMatching.PATTERN)
    assert meets(pattern, TablePlace("kafka b", "orders-eu"))
    assert not meets(pattern, TablePlace("kafka b", "all-orders-eu"))
    assert not meets(pattern, TablePlace("kafka c", "orders-eu"))


def node(name: str, reads: str, writes: str) -> PipelineNode:
    def uses(names: str) -> tuple[TableUse, ...]:
        return tuple(TableUse(n, "memory", TablePlace("memory", n), None) for n in names)

    return PipelineNode(f"{name}.sql", name, uses(reads), uses(writes))


def test_each_circle_is_told_once() -> None:
    graph = ProjectGraph((node("a", "x", "y"), node("b", "y", "z"), node("c", "z", "x"), node("d", "xz", "v")))
    (problem,) = graph_problems(graph)
    assert "'a' → 'b' → 'c' → 'a'; memory x closes it" in problem.message
    two = ProjectGraph((node("a", "x", "y"), node("b", "y", "x"), node("c", "p", "q"), node("d", "q", "p")))
    assert len(graph_problems(two)) == 2


def test_a_diamond_is_no_circle() -> None:
    graph = ProjectGraph((node("a", "", "x"), node("b", "x", "y"), node("c", "x", "z"), node("d", "yz", "w")))
    assert graph_problems(graph) == []


def test_a_long_chain_is_walked_without_recursion() -> None:
    chain = tuple(PipelineNode(
        str(n), str(n),
        (TableUse("t", "memory", TablePlace("memory", str(n)), None),),
        (TableUse("t", "memory", TablePlace("memory", str(n + 1)), None),),
    ) for n in range(200))  # fmt: skip
    assert graph_problems(ProjectGraph(chain)) == []
