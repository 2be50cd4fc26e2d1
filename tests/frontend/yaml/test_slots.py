"""The settings of slots and slot sharing groups, in documents and in scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowrun.core.resources import ResourceSpec, SlotSettings, SlotSharingGroup
from flowrun.errors import PipelineError
from flowrun.graph.job_graph import JobGraph
from flowrun.runners.compile import compile_pipeline

PIPELINE = """
settings: {{parallelism: 2, {settings}}}
sources:
  numbers: {{connector: datagen, number-of-rows: 10, schema: {{n: BIGINT}}}}
steps:
  twice: {{from: numbers, select: [n * 2 AS n], slot_sharing_group: heavy}}
sinks:
  out: {{from: twice, connector: blackhole}}
"""


def compiled(folder: Path, settings: str, overrides: dict[str, str] | None = None) -> JobGraph:
    path = folder / "pipeline.yaml"
    path.write_text(PIPELINE.format(settings=settings))
    return compile_pipeline(path, {}, overrides or {}).job_graph


def test_a_document_says_how_many_slots_there_are_and_what_those_of_a_group_have(tmp_path: Path) -> None:
    graph = compiled(
        tmp_path,
        "slots: {number: 4, cpu: 2.5, memory: 1gb, request_timeout: 30s}, slot_sharing_groups: {heavy: {memory: 256mb}}",
    )
    assert graph.settings.slots == SlotSettings(4, ResourceSpec(2.5, 1 << 30), 30_000)
    assert graph.slot_sharing_groups == (SlotSharingGroup("heavy", 0.0, 256 << 20),)
    assert {v.slot_sharing_group for v in graph.vertices} == {"default", "heavy"}


def test_so_does_the_command_line(tmp_path: Path) -> None:
    overrides = {"settings.slots.number": "3", "settings.slot_sharing_groups.default.cpu": "0.5"}
    graph = compiled(tmp_path, "chaining: true", overrides)
    assert graph.settings.slots == SlotSettings(3)
    assert graph.slot_sharing_groups == (SlotSharingGroup("default", 0.5),)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("slot_sharing_groups: {hevy: {cpu: 1}}", "no source, step or sink is in the slot sharing group 'hevy'"),
        ("slots: {memory: much}", "'memory' expects a memory size, got 'much'"),
        ("slots: {memory: 0}", "'memory' expects a memory size, got '0'"),
        ("slots: {number: 0}", "'number' must be at least 1, got 0"),
        ("slots: {cpu: 1e300}", "'cpu' is at most 1000000 cores"),
    ],
)
def test_what_cannot_be_is_reported_where_it_stands(tmp_path: Path, settings: str, message: str) -> None:
    with pytest.raises(PipelineError, match=message) as raised:
        compiled(tmp_path, settings)
    assert "pipeline.yaml:2:" in str(raised.value)


def test_a_group_that_is_written_wrong_has_a_near_name(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="did you mean 'heavy'"):
        compiled(tmp_path, "slot_sharing_groups: {hevy: {cpu: 1}}")


def test_scripts_have_the_keys_of_flink_and_our_own(tmp_path: Path) -> None:
    path = tmp_path / "script.sql"
    path.write_text("""
SET 'taskmanager.numberOfTaskSlots' = '2';
SET 'slot.request.timeout' = '60000';
SET 'flowrun.slots.cpu' = '1.5';
CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '3');
CREATE TABLE out (n BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO out SELECT n FROM numbers;
""")
    assert compile_pipeline(path).job_graph.settings.slots == SlotSettings(2, ResourceSpec(1.5), 60_000)
