"""Sources of upserts, and of changes that come twice: what their readers get, in SQL and YAML, and what is said of those without a key."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from flowrun.connectors import memory
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.errors import JobFailedError, PipelineError
from flowrun.operators.updating.factories import ChangelogNormalizeFactory
from flowrun.plan.changelog_nodes import ChangelogNormalize
from flowrun.plan.nodes import walk_plan
from flowrun.runners.compile import CompiledPipeline, compile_pipeline
from flowrun.runners.embedded import run_embedded
from tests.end_to_end.running import json_rows

UPSERT = ", 'debezium-json.changelog-mode'='upsert'"
DUPLICATES = "SET 'table.exec.source.cdc-events-duplicate' = 'true';\n"
PRICES = """
CREATE TABLE prices (item BIGINT, price INT NOT NULL, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '1' SECOND,
  PRIMARY KEY (item) NOT ENFORCED) WITH ('connector'='filesystem', 'path'='prices.json', 'format'='debezium-json'{more});
CREATE TABLE result (item BIGINT, price INT, n BIGINT, PRIMARY KEY (item) NOT ENFORCED)
  WITH ('connector'='filesystem', 'path'='out', 'format'='debezium-json');
"""
COUNTED = "INSERT INTO result SELECT item, MAX(price), COUNT(*) FROM prices GROUP BY item;"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    memory.clear()
    return tmp_path


def write(name: str, *changes: tuple[str, dict[str, object] | None, dict[str, object] | None]) -> None:
    Path(name).write_text("".join(json.dumps({"op": o, "before": b, "after": a}) + "\n" for o, b, a in changes))


def price(item: int, price: int | None = None, second: int | None = None) -> dict[str, object]:
    given: dict[str, object] = {"item": item}
    if price is not None:
        given |= {"price": price, "at": f"2024-01-01 00:00:{second:02}"}
    return given


def compiled(text: str, name: str = "script.sql", **settings: object) -> CompiledPipeline:
    Path(name).write_text(text)
    return compile_pipeline(Path(name), {}, {f"settings.{k}": str(v) for k, v in settings.items()})


def result() -> list[tuple[object, ...]]:
    """The rows that the written changes come to."""
    held: list[tuple[object, ...]] = []
    for change in json_rows(Path("out")):
        row = change["after"] or change["before"]
        assert isinstance(row, dict)
        (held.append if change["after"] else held.remove)(tuple(row.values()))
    return sorted(held, key=repr)


@pytest.mark.parametrize("batch_rows", [1, 7, 1000])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_deletes_by_key_have_no_other_columns_no_event_time_and_break_no_constraint(
    parallelism: int, batch_rows: int
) -> None:
    write(
        "prices.json",
        ("d", price(9), None),
        ("c", None, price(1, 10, 1)),
        ("u", None, price(1, 11, 2)),
        ("u", None, price(2, 20, 3)),
        ("d", price(2), None),
        ("u", None, price(3, 30, 1)),
        ("u", None, price(3, 30, 1)),
    )
    text = PRICES.format(more=UPSERT) + COUNTED
    run_embedded(compiled(text, parallelism=parallelism, batch_rows=batch_rows).job_graph)
    assert result() == [(1, 11, 1), (3, 30, 1)]


def test_a_row_that_adds_still_needs_what_must_not_be_null() -> None:
    write("prices.json", ("c", None, {"item": 1, "at": "2024-01-01 00:00:01"}))
    with pytest.raises(JobFailedError, match="column 'price' is NOT NULL, but the value is missing"):
        run_embedded(compiled(PRICES.format(more=UPSERT) + COUNTED).job_graph)
    write("prices.json", ("c", None, {"item": 1, "price": 3}))
    with pytest.raises(JobFailedError, match="event time 'at' must not be NULL"):
        run_embedded(compiled(PRICES.format(more=UPSERT) + COUNTED, **{"checkpoint.dir": "state"}).job_graph)


def test_changes_that_come_twice_count_once_if_the_setting_says_so() -> None:
    first, second = price(1, 10, 1), price(1, 11, 2)
    change = [("c", None, first), ("u", first, second)]
    write("prices.json", *change, *change, ("d", price(2, 5, 1), None), ("c", None, price(3, 7, 3)))  # type: ignore[arg-type]
    summed = "INSERT INTO result SELECT item, SUM(price), COUNT(*) FROM prices GROUP BY item;"
    run_embedded(compiled(DUPLICATES + PRICES.format(more="") + summed, parallelism=2).job_graph)
    assert result() == [(1, 11, 1), (3, 7, 1)]


def test_the_same_from_yaml() -> None:
    write(
        "prices.json",
        ("c", None, price(1, 10, 1)),
        ("c", None, price(1, 10, 1)),
        ("u", price(1, 10, 1), price(1, 12, 2)),
    )
    text = """
name: prices
settings: {cdc_events_duplicate: true}
sources:
  prices:
    {connector: filesystem, path: prices.json, format: debezium-json, primary_key: [item], schema: {item: BIGINT, price: INT}}
steps:
  counted: {from: prices, key_by: item, aggregate: [SUM(price) AS price, COUNT(*) AS n]}
sinks:
  result: {from: counted, connector: filesystem, path: out, format: debezium-json}
"""
    run_embedded(compiled(text, "p.yaml", parallelism=3).job_graph)
    assert result() == [(1, 12, 1)]
    with pytest.raises(PipelineError, match="needs sources of changes to have a primary key") as failure:
        compiled(text.replace("primary_key: [item], ", ""), "p.yaml")
    assert failure.value.diagnostics[0].location is not None
    assert "primary_key: […] on the source" in (failure.value.diagnostics[0].hint or "")


@pytest.mark.parametrize(
    ("setting", "more", "message"),
    [
        ("", UPSERT, "source 'prices' gives upserts, updates without the row before, which needs a primary key"),
        (
            DUPLICATES,
            "",
            "'table.exec.source.cdc-events-duplicate' is on, which needs sources of changes to have a primary key",
        ),
    ],
)
def test_without_a_primary_key_it_is_an_error_before_the_run(setting: str, more: str, message: str) -> None:
    write("prices.json")
    text = setting + PRICES.format(more=more).replace(",\n  PRIMARY KEY (item) NOT ENFORCED)", ")") + COUNTED
    with pytest.raises(PipelineError, match=message) as failure:
        compiled(text)
    (problem,) = failure.value.diagnostics
    assert problem.location is not None
    assert "PRIMARY KEY (…) NOT ENFORCED on the source" in (problem.hint or "")


def test_only_what_needs_it_is_normalised() -> None:
    write("prices.json")
    others = """
    CREATE TABLE plain (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector'='datagen', 'number-of-rows'='3');
    CREATE TABLE out2 (id BIGINT) WITH ('connector'='blackhole');
    """
    both = "EXECUTE STATEMENT SET BEGIN " + COUNTED + "INSERT INTO out2 SELECT id FROM plain; END;"
    wanted = {("", ""): 0, ("", UPSERT): 1, (DUPLICATES, ""): 1, (DUPLICATES, UPSERT): 1}
    for (setting, more), count in wanted.items():
        plan = compiled(setting + PRICES.format(more=more) + others + both).optimised
        assert sum(isinstance(n, ChangelogNormalize) for n in walk_plan(plan)) == count


@pytest.mark.parametrize("batch_rows", [1, 7, 1000])
def test_every_upsert_is_a_version_of_a_temporal_join(batch_rows: int) -> None:
    write("prices.json", *(("u", None, price(1, n, n)) for n in (10, 20, 30)), ("u", None, price(1, 40, 50)))
    Path("orders.json").write_text(
        "".join(json.dumps({"id": n, "at": f"2024-01-01 00:00:{n:02}"}) + "\n" for n in (5, 15, 25, 35))
    )
    text = (
        PRICES.format(more=UPSERT)
        + """
    CREATE TABLE orders (id BIGINT, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector'='filesystem', 'path'='orders.json',
      'format'='json');
    INSERT INTO result SELECT o.id, p.price, CAST(1 AS BIGINT) FROM orders AS o LEFT JOIN prices FOR SYSTEM_TIME AS OF o.at AS p
      ON p.item = CASE WHEN o.id > 0 THEN 1 END;
    """
    )
    run_embedded(compiled(text, batch_rows=batch_rows).job_graph)
    assert result() == [(15, 10, 1), (25, 20, 1), (35, 30, 1), (5, None, 1)]


def test_rows_of_a_memory_table_are_upserts_if_they_have_no_rows_before() -> None:
    columns = pa.record_batch({"item": pa.array([1, 1, 2, 1]), "price": pa.array([1, 2, 3, None], pa.int32())})
    kinds = [RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.UPDATE_AFTER, RowKind.DELETE]
    memory.put("given", [RecordBatch(columns, row_kinds=pa.array([int(k) for k in kinds], pa.int8()))])
    text = (
        PRICES.format(more="")
        + """
    CREATE TABLE given (item BIGINT, price INT, PRIMARY KEY (item) NOT ENFORCED) WITH ('connector'='memory', 'table'='given');
    INSERT INTO result SELECT item, MAX(price), COUNT(*) FROM given GROUP BY item;
    """
    )
    write("prices.json")
    run_embedded(compiled(text).job_graph)
    assert result() == [(2, 3, 1)]


def test_when_a_change_was_read_does_not_tell_it_from_the_one_before() -> None:
    write("prices.json", ("c", None, price(1, 10, 1)), ("c", None, price(1, 10, 1)))
    text = DUPLICATES + PRICES.format(more="").replace("WATERMARK", "read_at AS PROCTIME(), WATERMARK")
    text += "INSERT INTO result SELECT item, price, CAST(COUNT(*) AS BIGINT) FROM prices WHERE read_at IS NOT NULL GROUP BY item, price;"
    plan = compiled(text, batch_rows=1)
    (normalize,) = (
        o.factory
        for v in plan.job_graph.vertices
        for o in v.operators
        if isinstance(o.factory, ChangelogNormalizeFactory)
    )
    assert [normalize.schema.names[i] for i in normalize.clocks] == ["read_at"]
    run_embedded(plan.job_graph)
    assert len(json_rows(Path("out"))) == 1
