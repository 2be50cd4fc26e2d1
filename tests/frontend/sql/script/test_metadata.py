"""METADATA columns that are read, written, or both: what INSERT takes, what the connector gets, and what does not fit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flowrun.core.types import BIGINT, BYTES, STRING, map_of, timestamp, timestamp_ltz
from flowrun.plan.explain import plan_text
from flowrun.plan.nodes import Scan, Sink, walk_plan
from flowrun.plan.tables import create_sink
from tests.frontend.sql.messages import PROMPTED, messages
from tests.frontend.sql.script.scripts import GENERATED, lines, load, plan_of, problems, scan_of

SOURCE = f"CREATE TABLE s (id BIGINT, n INT, name STRING, ts TIMESTAMP(3)) {GENERATED};\n"


@pytest.fixture(autouse=True)
def _connector() -> Iterator[None]:
    with messages():
        yield


def table(columns: str, name: str = "m") -> str:
    return f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'messages', 'table' = '{name}');\n"


MIXED = table(
    "at TIMESTAMP(3) METADATA FROM 'timestamp', id BIGINT, topic STRING METADATA VIRTUAL, twice AS id * 2, "
    "headers MAP<STRING, BYTES> METADATA, name STRING"
)


def sink_of(statement: str, tables: str = MIXED) -> Sink:
    return plan_of(SOURCE + tables + statement).sinks[0]


def written(sink: Sink) -> dict[str, str]:
    return dict(zip(sink.schema.names, map(str, getattr(sink.input, "projections", ())), strict=True))


def test_an_insert_gives_values_to_metadata_in_the_order_of_the_declaration() -> None:
    sink = sink_of("INSERT INTO m SELECT ts, id, CAST(NULL AS MAP<STRING, BYTES>), name FROM s")
    assert sink.schema.names == ("id", "name", "at", "headers")
    assert sink.schema.types == (BIGINT, STRING, timestamp_ltz(3), map_of(STRING, BYTES))
    assert sink.table.written_metadata == {"at": "timestamp", "headers": "headers"}
    assert written(sink)["at"] == "CAST(ts AS TIMESTAMP_LTZ(3))"


def test_the_connector_is_told_the_rows_from_the_metadata() -> None:
    sink = sink_of("INSERT INTO m SELECT ts, id, NULL, name FROM s")
    create_sink(sink.table, sink.schema, unbounded=False)
    assert PROMPTED[-1].schema == sink.schema
    assert PROMPTED[-1].physical.names == ("id", "name")
    assert PROMPTED[-1].metadata == {"at": "timestamp", "headers": "headers"}


def test_columns_that_are_listed_may_be_metadata_or_not() -> None:
    sink = sink_of("INSERT INTO m (name, at) SELECT name, ts FROM s")
    assert written(sink) == {"id": "NULL", "name": "name", "at": "CAST(ts AS TIMESTAMP_LTZ(3))", "headers": "NULL"}
    for columns, message in (
        ("topic", "column 'topic' is VIRTUAL metadata, it cannot be written"),
        ("twice", "column 'twice' is computed, it cannot be written"),
        ("att", "column 'att' does not exist in 'm'"),
    ):
        assert message in problems(SOURCE + MIXED + f"INSERT INTO m ({columns}) SELECT name FROM s")


def test_a_query_s_columns_are_counted_with_those_of_metadata() -> None:
    shown = problems(SOURCE + MIXED + "INSERT INTO m SELECT id, name FROM s")
    assert "'m' takes 4 columns, the query gives 2" in shown
    assert "'m' takes at, id, headers, name" in shown


def test_types_convert_to_the_column_s_by_themselves_and_then_to_the_key_s() -> None:
    tag = table("id BIGINT, tag BIGINT METADATA")
    assert written(sink_of("INSERT INTO m SELECT id, n FROM s", tag))["tag"] == "CAST(CAST(n AS BIGINT) AS STRING)"
    shown = problems(SOURCE + tag + "INSERT INTO m SELECT id, name FROM s")
    assert "column 2 of the query, 'name', is STRING, but 'tag' of 'm' is BIGINT" in shown
    scan = scan_of(tag + "SELECT tag FROM m")
    assert str(scan.projections[1]) == "CAST(tag AS BIGINT)", "as it is read it is an INT"


def test_metadata_that_must_be_there() -> None:
    tables = table("id BIGINT, at TIMESTAMP_LTZ(3) NOT NULL METADATA FROM 'timestamp'")
    assert not sink_of("INSERT INTO m SELECT id, CURRENT_TIMESTAMP FROM s", tables).schema.field("at").nullable
    assert "column 'at' is NOT NULL and gets no value" in problems(
        SOURCE + tables + "INSERT INTO m (id) SELECT id FROM s"
    )


def test_metadata_alone() -> None:
    sink = sink_of("INSERT INTO m SELECT name FROM s", table("tag STRING METADATA"))
    assert sink.schema.names == ("tag",)


@pytest.mark.parametrize(
    ("columns", "message", "hints"),
    [
        (
            "offset BIGINT METADATA",
            "the metadata column 'offset' of 'm' cannot be written",
            [
                "declare it VIRTUAL: offset … METADATA VIRTUAL",
                "connector 'messages' takes timestamp TIMESTAMP_LTZ(3), headers MAP<STRING, BYTES>, tag STRING",
            ],
        ),
        (
            "headers STRING METADATA",
            "the metadata 'headers' of 'm' is written as MAP<STRING, BYTES>, to which 'headers' of type STRING does not convert",
            ["declare it as MAP<STRING, BYTES>"],
        ),
        (
            "a STRING METADATA FROM 'tag', b STRING METADATA FROM 'tag'",
            "the metadata 'tag' of 'm' would be written by two columns, 'a' and 'b'",
            ["declare one of them VIRTUAL: b … METADATA FROM 'tag' VIRTUAL"],
        ),
    ],
)
def test_metadata_that_cannot_be_written(columns: str, message: str, hints: list[str]) -> None:
    statement = "INSERT INTO m SELECT * FROM s"
    shown = problems(SOURCE + table(columns) + statement)
    assert f"s.sql:3:{statement.index('m ') + 1}: error: {message}" in shown
    for hint in hints:
        assert hint in shown


def test_two_columns_of_one_key_may_be_read() -> None:
    scan = scan_of(table("a INT METADATA FROM 'tag' VIRTUAL, id INT, b STRING METADATA FROM 'tag'") + "SELECT * FROM m")
    assert scan.physical.names == ("id", "tag")
    assert [str(p) for p in scan.projections] == ["tag", "id", "CAST(tag AS STRING)"]


def test_metadata_that_can_only_be_written_is_not_read() -> None:
    columns = "id INT, h MAP<STRING, BYTES> METADATA FROM 'headers', c AS CARDINALITY(h)"
    made = table(columns)
    assert load(made).plan.sinks == ()
    (line,) = lines(made + "SELECT id FROM m")
    place = made.index("'headers'") + 1
    assert line == f"s.sql:1:{place}: error: table 'm': the metadata 'headers' can be written, but not read"
    assert "declared without column 'h': LIKE … (EXCLUDING METADATA)" in problems(made + "SELECT id FROM m")
    assert load(made + "CREATE TABLE r LIKE m (EXCLUDING METADATA EXCLUDING GENERATED); SELECT id FROM r").plan.sinks


@pytest.mark.parametrize(
    ("column", "hint"),
    [
        ("x STRING METADATA FROM 'headrs'", "did you mean 'headers'"),
        ("headers MAP<STRING, BYTES> METADATA VIRTUAL", "known: "),
        ("timestmp TIMESTAMP_LTZ(3) METADATA", "did you mean 'timestamp'"),
    ],
)
def test_metadata_that_is_not_there(column: str, hint: str) -> None:
    shown = problems(table(column))
    assert "there is no metadata '" in shown
    assert hint in shown


def test_the_connector_takes_metadata_but_fills_none() -> None:
    shown = problems(
        "CREATE TABLE t (id INT, timestamp TIMESTAMP_LTZ(3) METADATA VIRTUAL) WITH ('connector' = 'memory', 'table' = 't')"
    )
    assert "the connector has no metadata columns that can be read" in shown


def test_a_physical_column_may_be_called_like_a_key() -> None:
    columns = "`timestamp` BIGINT, at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', `metadata.timestamp` INT"
    scan = scan_of(table(columns) + "SELECT `timestamp`, at FROM m")
    assert scan.physical.names == ("timestamp", "metadata.timestamp", "metadata.metadata.timestamp")
    assert scan.table.metadata == {"metadata.metadata.timestamp": "timestamp"}
    assert [str(p) for p in scan.projections] == ["timestamp", "metadata.metadata.timestamp", "metadata.timestamp"]
    sink = sink_of("INSERT INTO m SELECT id, ts, n FROM s", table(columns))
    assert sink.schema.names == ("timestamp", "metadata.timestamp", "at")
    assert sink.table.written_metadata == {"at": "timestamp"}


def test_how_they_are_shown() -> None:
    copied = "CREATE TABLE c LIKE m; DESCRIBE c; SHOW CREATE TABLE c;"
    described, created = load(MIXED + copied).outputs
    assert "METADATA FROM 'timestamp' |" in described
    assert "METADATA VIRTUAL |" in described
    assert "  `at` TIMESTAMP(3) METADATA FROM 'timestamp',\n" in created
    assert "  `topic` STRING METADATA VIRTUAL,\n" in created
    plan = plan_of(SOURCE + MIXED + "CREATE TABLE c LIKE m; INSERT INTO c SELECT ts, id, NULL, name FROM s")
    shown = plan_text(plan)
    assert "writes: id, name\n" in shown
    assert "metadata: timestamp = at, headers = headers\n" in shown


def test_what_is_read_and_written_is_one_table() -> None:
    both = table("id BIGINT, at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', topic STRING METADATA VIRTUAL")
    plan = plan_of(both + "CREATE TABLE c LIKE m; INSERT INTO c SELECT id, at FROM m WHERE topic = 'x'")
    (scan,) = (n for n in walk_plan(plan) if isinstance(n, Scan))
    assert scan.table.metadata == {"timestamp": "timestamp", "topic": "topic"}
    assert plan.sinks[0].schema.names == ("id", "at")
    assert timestamp(3) not in plan.sinks[0].schema.types
