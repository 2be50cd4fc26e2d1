"""`flowrun plan FILE --from-savepoint DIR`: what becomes of each operator's state when the pipeline was edited."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from flowrun.api.operator import DescribesState
from flowrun.api.state import OperatorSnapshot, OperatorState
from flowrun.core.clock import SystemClock
from flowrun.core.elements import CheckpointKind
from flowrun.runners.compile import CompiledPipeline, compile_pipeline
from flowrun.state.checkpoints import CheckpointMetadata, OperatorMetadata
from flowrun.state.key_groups import key_group_range
from flowrun.state.storage.folder import open_job_folder
from tests.end_to_end.conftest import Command

PIPELINE = """\
name: shop
settings: {parallelism: 2}
sources:
  orders:
    connector: datagen
    uid: orders
    number-of-rows: 1000
    schema: {user_id: BIGINT, amount: BIGINT, ts: TIMESTAMP(3)}
    watermark: {column: ts, delay: 5s}
steps:
  per_minute:
    from: orders
    uid: per_minute
    key_by: [user_id]
    window: {type: tumbling, size: 1m}
    aggregate: ["COUNT(*) AS n", "SUM(amount) AS total"]
sinks:
  out: {from: per_minute, uid: out, connector: blackhole}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    file = tmp_path / "shop.yaml"
    file.write_text(PIPELINE)
    return file


@pytest.fixture
def savepoint(tmp_path: Path, pipeline: Path) -> Path:
    """What the pipeline would have taken with a row in each of its tables."""
    return take(tmp_path / "kept", compile_pipeline(pipeline))


def take(directory: Path, compiled: CompiledPipeline) -> Path:
    folder = open_job_folder(str(directory / "state"), "shop", lineage="a" * 32, clock=SystemClock())
    try:
        target = folder.begin(1, CheckpointKind.SAVEPOINT, str(directory))
        operators = {}
        for vertex in compiled.job_graph.vertices:
            for operator in vertex.operators:
                groups = key_group_range(0, vertex.parallelism, vertex.max_parallelism)
                writer = folder.writer(operator.operator_id, operator.name, 0, groups)
                snapshot = one_row(operator.factory, operator.source is not None)
                state = writer.write(1, target, CheckpointKind.SAVEPOINT, snapshot)
                operators[operator.operator_id] = OperatorMetadata(
                    operator.operator_id,
                    operator.uid,
                    operator.name,
                    vertex.vertex_id,
                    vertex.parallelism,
                    vertex.max_parallelism,
                    {} if snapshot.is_empty else {0: state},
                    enumerator={"next": 0, "origin_ms": 0, "returned": []} if operator.source is not None else None,
                )
        return Path(folder.finish(target, metadata(compiled, operators, folder.job_folder)))
    finally:
        folder.close()


def one_row(factory: object, source: bool) -> OperatorSnapshot:
    if source:
        position = '{"next": 0, "stop": 9, "origin_ms": 0}'
        splits = {"split_id": ["0"], "position": [position], "watermark": pa.array([None], pa.int64())}
        return OperatorSnapshot(operator={"splits": OperatorState(pa.table(splits))})
    if not isinstance(factory, DescribesState):
        return OperatorSnapshot()
    tables: Mapping[str, pa.Schema] = factory.state_schemas()
    rows = {n: {f.name: "0" if f.type in (pa.string(), pa.binary()) else 0 for f in s} for n, s in tables.items()}
    return OperatorSnapshot({n: pa.Table.from_pylist([rows[n]], s) for n, s in tables.items()})


def metadata(
    compiled: CompiledPipeline, operators: Mapping[str, OperatorMetadata], job_folder: str
) -> CheckpointMetadata:
    return CheckpointMetadata(
        checkpoint_id=1,
        kind=CheckpointKind.SAVEPOINT,
        triggered_ms=0,
        completed_ms=1,
        job_name="shop",
        lineage="a" * 32,
        job_folder=job_folder,
        flowrun_version="0",
        pipeline=compiled.text,
        job_graph=json.loads(compiled.render("job", "json")),
        operators=operators,
    )


def edited(pipeline: Path, *changes: tuple[str, str]) -> Path:
    text = pipeline.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    pipeline.write_text(text)
    return pipeline


def changes(out: str) -> dict[str, str]:
    """Name of each operator → what becomes of it."""
    known = ("kept", "new", "dropped", "changed", "incompatible", "stateless")
    lines = [line for line in out.splitlines() if line.startswith("  ") and line.split()[0] in known]
    return {line[16:].split("  ")[0]: line.split()[0] for line in lines}


def test_an_unchanged_pipeline_keeps_all(flowrun: Command, pipeline: Path, savepoint: Path) -> None:
    ran = flowrun("plan", pipeline, "--from-savepoint", savepoint)
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[:2] == [str(savepoint), "savepoint 1 of 'shop'"]
    assert ran.out.splitlines()[-1] == "can resume"
    assert changes(ran.out)["per_minute"] == changes(ran.out)["Source: orders"] == "kept"


def test_a_filter_a_new_sink_and_another_parallelism(flowrun: Command, pipeline: Path, savepoint: Path) -> None:
    edited(
        pipeline,
        ("    from: orders\n", "    from: big\n"),
        ("steps:\n", "steps:\n  big: {from: orders, filter: amount > 3}\n"),
        ("sinks:\n", "sinks:\n  raw: {from: big, connector: blackhole}\n"),
    )
    ran = flowrun("plan", pipeline, "--from-savepoint", savepoint, "--parallelism", 3)
    assert ran.code == 0, ran.out
    assert changes(ran.out)["per_minute"] == "kept"
    assert changes(ran.out)["Sink: raw"] == "new"
    assert "parallelism 2 -> 3, max parallelism 128" in ran.out


def test_a_removed_step_needs_leave_to_lose_its_state(flowrun: Command, pipeline: Path, savepoint: Path) -> None:
    start, end = PIPELINE.index("steps:"), PIPELINE.index("sinks:")
    pipeline.write_text(PIPELINE[:start] + PIPELINE[end:].replace("from: per_minute", "from: orders"))
    ran = flowrun("plan", pipeline, "--from-savepoint", savepoint)
    assert ran.code == 2
    assert changes(ran.out)["per_minute"] == "dropped"
    assert "error: 'per_minute' (uid 'per_minute') has state in the savepoint" in ran.out
    assert "hint: put it back, or leave its state behind with --allow-non-restored-state" in ran.out
    ran = flowrun("plan", pipeline, "--from-savepoint", savepoint, "--allow-non-restored-state")
    assert ran.code == 0
    assert ran.out.splitlines()[-1].startswith("can resume; leaves the state of 1 operator behind")


def test_an_added_aggregate_migrates(flowrun: Command, pipeline: Path, savepoint: Path) -> None:
    edited(pipeline, ('"SUM(amount) AS total"', '"SUM(amount) AS total", "MAX(amount) AS most"'))
    ran = flowrun("plan", pipeline, "--from-savepoint", savepoint)
    assert ran.code == 0, ran.out
    assert changes(ran.out)["per_minute"] == "changed"
    assert "+ partials: column 'max_amount' int64 is added, NULL in what is there" in ran.out


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"SUM(amount) AS total"', '"MAX(amount) AS total"', "column 'sum_amount' int64 was removed"),
        ("key_by: [user_id]", "key_by: [amount]", "the key columns were user_id, are amount now"),
        ("key_by: [user_id]", "key_by: [user_id, amount]", "the key columns were user_id, are user_id, amount now"),
        ("user_id: BIGINT", "user_id: STRING", "column 'user_id' was int64, is string now"),
        (
            "size: 1m",
            "size: 5m",
            "column 'slice_end' held end of a slice of 1m, ms since the epoch, would hold end of a slice of 5m",
        ),
    ],
)
def test_other_changes_of_state_are_refused(
    flowrun: Command, pipeline: Path, savepoint: Path, old: str, new: str, said: str
) -> None:
    edited(pipeline, (old, new))
    ran = flowrun("plan", pipeline, "--from-savepoint", savepoint)
    assert ran.code == 2
    assert changes(ran.out)["per_minute"] == "incompatible"
    assert said in ran.out
    assert "give it a new uid" in ran.out


def test_another_expression_below_an_aggregate_is_noted(flowrun: Command, pipeline: Path, tmp_path: Path) -> None:
    edited(pipeline, ("SUM(amount)", "SUM(amount * 2)"))
    taken = take(tmp_path / "twice", compile_pipeline(pipeline))
    edited(pipeline, ("SUM(amount * 2)", "SUM(amount * 3)"))
    ran = flowrun("plan", pipeline, "--from-savepoint", taken)
    assert ran.code == 0, ran.out
    assert "note: partials: column 'sum_total' held SUM(amount * 2), would hold SUM(amount * 3) now" in ran.out


def test_key_groups(flowrun: Command, pipeline: Path, savepoint: Path) -> None:
    ran = flowrun("plan", pipeline, "--from-savepoint", savepoint, "--set", "settings.max_parallelism=64")
    assert ran.code == 2
    assert "max parallelism 128, the pipeline sets 64" in ran.out
    ran = flowrun("plan", pipeline, "--from-savepoint", savepoint, "--parallelism", 200)
    assert ran.code == 2
    assert "'per_minute' has parallelism 200, but its state has max parallelism 128" in ran.out


def test_a_changed_uid_is_explained(flowrun: Command, pipeline: Path, savepoint: Path) -> None:
    edited(pipeline, ("uid: per_minute", "uid: other"))
    ran = flowrun("plan", pipeline, "--from-savepoint", savepoint)
    assert ran.code == 2
    assert "give it the uid 'per_minute'" in ran.out


def test_without_a_file_the_kept_pipeline_is_compared(
    flowrun: Command, pipeline: Path, savepoint: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = flowrun("plan", "--from-savepoint", savepoint)
    assert ran.code == 0, ran.err
    assert changes(ran.out)["per_minute"] == "kept"


def test_json(flowrun: Command, pipeline: Path, savepoint: Path) -> None:
    edited(pipeline, ("uid: per_minute", "uid: other"))
    ran = flowrun("plan", pipeline, "--from-savepoint", savepoint, "--format", "json")
    assert ran.code == 2
    shown = json.loads(ran.out)
    assert shown["can_resume"] is False
    by_change = {o["change"]: o for o in shown["operators"]}
    dropped = by_change["dropped"]
    assert (dropped["uid"], dropped["parallelism_before"], dropped["parallelism_after"]) == ("per_minute", 2, None)
    assert dropped["tables"][0]["name"] == "partials"
    assert dropped["bytes"] > 0
    assert shown["problems"][0]["hint"].startswith("if 'per_minute' is to go on from it")


def test_nothing_is_written_and_no_lock_is_taken(flowrun: Command, pipeline: Path, savepoint: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in savepoint.rglob("*")}
    held = open_job_folder(str(savepoint.parent / "state"), "shop", lineage="b" * 32, clock=SystemClock())
    try:
        assert flowrun("plan", pipeline, "--from-savepoint", savepoint).code == 0
    finally:
        held.close()
    assert {p: p.stat().st_mtime_ns for p in savepoint.rglob("*")} == before


def test_a_missing_savepoint_and_a_wrong_pipeline_are_wrong_input(
    flowrun: Command, pipeline: Path, tmp_path: Path, savepoint: Path
) -> None:
    assert flowrun("plan", pipeline, "--from-savepoint", tmp_path / "nowhere").code == 2
    edited(pipeline, ("SUM(amount)", "SUM(amont)"))
    ran = flowrun("plan", pipeline, "--from-savepoint", savepoint)
    assert ran.code == 2
    assert "amont" in ran.err
