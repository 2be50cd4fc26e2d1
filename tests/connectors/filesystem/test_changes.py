"""Files of changes: written in their order, read as updates that no batch cuts in two."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from flowrun.api.changelog import ChangelogMode
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.errors import UnsupportedPlanError
from flowrun.testing.connector_conformance import SourceDrive, check_source, writer_context

from .tables import read, sink, source, visible_files

SCHEMA = Schema.of(id=BIGINT, day=STRING)


def changes(*rows: tuple[int, int, str]) -> RecordBatch:
    columns = pa.RecordBatch.from_pylist([{"id": i, "day": d} for _, i, d in rows], schema=SCHEMA.arrow)
    return RecordBatch(columns, row_kinds=pa.array([k for k, _, _ in rows], pa.int8()))


@pytest.mark.parametrize("keys", [(), ("day",)], ids=["flat", "partitioned"])
def test_changes_keep_their_order_in_every_partition(tmp_path: Path, keys: tuple[str, ...]) -> None:
    target = sink(tmp_path, "debezium-json", SCHEMA, partition_keys=keys)
    writer = target.create_writer(writer_context())
    writer.open()
    writer.write(changes((0, 1, "mon"), (0, 2, "tue"), (1, 1, "mon"), (2, 3, "mon"), (3, 2, "tue")))
    target.create_committer().commit(writer.prepare_commit())
    writer.close()
    ops = {
        f.parent.name: [
            (r["op"], (r["after"] or r["before"])["id"]) for r in map(json.loads, f.read_text().splitlines())
        ]
        for f in visible_files(tmp_path)
    }
    mon, tue = [("c", 1), ("d", 1), ("c", 3)], [("c", 2), ("d", 2)]
    expected = {"day=mon": mon, "day=tue": tue} if keys else {tmp_path.name: [mon[0], tue[0], *mon[1:], tue[1]]}
    assert ops == expected


def updates(count: int) -> str:
    return "".join(
        f'{{"op":"u","before":{{"id":{i},"day":"a"}},"after":{{"id":{i},"day":"b"}}}}\n' for i in range(count)
    )


@pytest.mark.parametrize(
    ("format", "change"),
    [
        ("debezium-json", '{{"op":"u","before":{{"id":1,"day":"{}"}},"after":{{"id":1,"day":"{}"}}}}\n'),
        ("canal-json", '{{"type":"UPDATE","old":[{{"day":"{}"}}],"data":[{{"id":1,"day":"{}"}}]}}\n'),
    ],
)
def test_one_reader_reads_all_changes_of_a_file_in_their_order(tmp_path: Path, format: str, change: str) -> None:
    (tmp_path / "f.json").write_text("".join(change.format(i, i + 1) for i in range(20)))
    changing = source(tmp_path, format, SCHEMA, {"source.split-size": "200 b"})
    days = [day for _, day in read(changing, parallelism=2, batch_rows=2)]
    assert days == [str(day) for i in range(20) for day in (i, i + 1)]


@pytest.mark.parametrize("batch_rows", [1, 2, 3, 1000])
def test_an_update_stays_together_whatever_the_batches(tmp_path: Path, batch_rows: int) -> None:
    (tmp_path / "f.json").write_text(updates(20))
    changing = source(tmp_path, "debezium-json", SCHEMA)
    assert changing.changelog_mode is ChangelogMode.RETRACT
    drive = SourceDrive(changing, batch_rows=batch_rows)
    drive.run()
    seen = 0
    for batch in drive.emitted:
        assert batch.row_kinds is not None
        assert batch.row_kinds.to_pylist() == [RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER] * (batch.num_rows // 2)
        assert batch.num_rows % 2 == 0
        seen += batch.num_rows
    assert seen == 40


def test_a_source_of_changes_keeps_the_contract_of_sources(tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text(updates(7))
    expected = [(i, day) for i in range(7) for day in "ab"]
    check_source(source(tmp_path, "debezium-json", SCHEMA), expected)


def test_a_null_in_half_of_an_update_makes_the_whole_of_it_bad(tmp_path: Path) -> None:
    schema = Schema((Field("id", BIGINT), Field("day", STRING, nullable=False)))
    (tmp_path / "f.json").write_text(updates(2) + '{"op":"u","before":{"id":9},"after":{"id":9,"day":"x"}}\n')
    drive = SourceDrive(source(tmp_path, "debezium-json", schema, {"format.on-error": "skip"}))
    assert [r[0] for r in drive.run()] == [0, 0, 1, 1]


def test_a_format_of_rows_cannot_say_what_changed(tmp_path: Path) -> None:
    writer = sink(tmp_path, "json", SCHEMA).create_writer(writer_context())
    writer.open()
    with pytest.raises(UnsupportedPlanError, match="debezium-json"):
        writer.write(changes((3, 1, "mon")))
    writer.close()
