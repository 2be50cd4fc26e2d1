"""Sources that are read in turn: their rows are there once and in order, wherever the reading stops and goes on."""

from __future__ import annotations

import pickle
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT
from flowrun.errors import StateError
from flowrun.testing.connector_conformance import SourceDrive, check_source
from tests.connectors.hybrid.tables import SCHEMA, files, reference, source, stamp, write_rows


def rows(seconds: Any) -> list[tuple[int, datetime]]:
    return [(s, datetime.fromisoformat(stamp(s))) for s in seconds]


def test_rows_of_each_source_come_once_wherever_reading_stops(tmp_path: Path) -> None:
    for number in range(5):
        write_rows(tmp_path / "old" / f"{number}.json", range(number * 20, number * 20 + 20))
        write_rows(tmp_path / "new" / f"{number}.json", range(100 + number * 20, 120 + number * 20))
    made = source(reference("history,live", files("history", tmp_path / "old"), files("live", tmp_path / "new")))
    check_source(made, rows(range(200)), batch_rows=(1, 1024), restarts=8)


def test_three_sources_with_two_switch_times_overlap_and_give_each_row_once(tmp_path: Path) -> None:
    write_rows(tmp_path / "a" / "1.json", range(0, 60))
    write_rows(tmp_path / "a" / "2.json", range(60, 130))
    write_rows(tmp_path / "b" / "1.json", range(40, 170))
    write_rows(tmp_path / "c" / "1.json", range(0, 140))
    write_rows(tmp_path / "c" / "2.json", range(140, 220))
    table = reference(
        "a,b,c", *(files(n, tmp_path / n) for n in "abc"), switch_time=f"{stamp(100)}, {stamp(150)}Z",
    )  # fmt: skip
    check_source(source(table), rows(range(220)), batch_rows=(7, 1024), restarts=8)


def test_the_next_source_begins_when_all_readers_have_read_the_one_before(tmp_path: Path) -> None:
    for number in range(3):
        write_rows(tmp_path / "old" / f"{number}.json", range(number * 10, number * 10 + 10))
        write_rows(tmp_path / "new" / f"{number}.json", range(100 + number, 103 + number))
    made = source(reference("history,live", files("history", tmp_path / "old"), files("live", tmp_path / "new")))
    for parallelism in (1, 2, 5):
        drive = SourceDrive(made, parallelism=parallelism, batch_rows=3)
        ids = [i for i, _ in drive.run()]
        drive.close()
        assert sorted(ids[:30]) == list(range(30)), "a row of the second source came too early"


def test_the_column_of_event_time_is_read_for_the_switch_alone(tmp_path: Path) -> None:
    write_rows(tmp_path / "old" / "1.json", range(0, 60))
    write_rows(tmp_path / "new" / "1.json", range(30, 90))
    table = reference(
        "history,live", files("history", tmp_path / "old"), files("live", tmp_path / "new"), switch_time=stamp(50)
    )
    made = source(table, Schema.of(id=BIGINT))
    drive = SourceDrive(made)
    assert sorted(drive.run()) == [(i,) for i in range(90)]
    assert drive.metrics.counter("numRecordsOfOtherSources").count == 30
    drive.close()
    nothing = SourceDrive(source(table, Schema(())))
    nothing.run()
    assert sum(b.num_rows for b in nothing.emitted) == 90
    nothing.close()


def test_what_is_read_of_all_sources_is_settled_at_the_beginning(tmp_path: Path) -> None:
    write_rows(tmp_path / "old" / "1.json", range(10))
    write_rows(tmp_path / "new" / "1.json", range(100, 110))
    made = source(reference("history,live", files("history", tmp_path / "old"), files("live", tmp_path / "new")))
    drive = SourceDrive(made, batch_rows=2)
    drive.run(2)
    write_rows(tmp_path / "new" / "2.json", range(200, 210))
    assert [i for i, _ in drive.run()] == [*range(10), *range(100, 110)]
    drive.close()


def test_a_new_run_finds_files_that_came_since(tmp_path: Path) -> None:
    write_rows(tmp_path / "old" / "1.json", range(10))
    write_rows(tmp_path / "new" / "1.json", range(100, 110))
    made = source(reference("history,live", files("history", tmp_path / "old"), files("live", tmp_path / "new")))
    drive = SourceDrive(made, batch_rows=2)
    before = [i for i, _ in drive.run(2)]
    state, splits = drive.snapshot()
    drive.close()
    write_rows(tmp_path / "old" / "2.json", range(10, 20))
    write_rows(tmp_path / "new" / "2.json", range(110, 120))
    enumerator = made.create_enumerator(1, drive.clock, state)
    enumerator.start()
    assert [Path(p).name for p in enumerator.look_again()] == ["2.json", "2.json"]  # type: ignore[attr-defined]
    again = SourceDrive(made, enumerator_state=enumerator.snapshot(), restored=splits)
    assert sorted([*before, *(i for i, _ in again.run())]) == [*range(20), *range(100, 120)]
    again.close()


def test_state_of_a_source_that_is_gone_is_refused(tmp_path: Path) -> None:
    write_rows(tmp_path / "old" / "1.json", range(10))
    write_rows(tmp_path / "new" / "1.json", range(100, 110))
    given = (files("history", tmp_path / "old"), files("live", tmp_path / "new"))
    drive = SourceDrive(source(reference("history,live", *given)))
    state, _ = drive.snapshot()
    drive.close()
    renamed = source(reference("past,live", files("past", tmp_path / "old"), given[1]))
    with pytest.raises(
        StateError, match="the state is one of sources 'history', 'live', and the table has 'past', 'live'"
    ):
        renamed.create_enumerator(1, drive.clock, state)


def test_the_time_of_a_switch_cannot_be_moved_under_a_job(tmp_path: Path) -> None:
    write_rows(tmp_path / "old" / "1.json", range(10))
    given = (files("a", tmp_path / "old"), files("b", tmp_path / "old"))
    drive = SourceDrive(source(reference("a,b", *given, switch_time=stamp(5))))
    state, _ = drive.snapshot()
    drive.close()
    moved = source(reference("a,b", *given, switch_time=stamp(7)))
    said = "source 'b' from 2026-01-01T00:00:05.000Z on, and the table has it from 2026-01-01T00:00:07.000Z on"
    with pytest.raises(StateError, match=said):
        moved.create_enumerator(1, drive.clock, state)


def test_a_source_survives_the_way_to_other_processes(tmp_path: Path) -> None:
    write_rows(tmp_path / "old" / "1.json", range(10))
    table = reference("a,b", files("a", tmp_path / "old"), files("b", tmp_path / "old"), switch_time=stamp(5))
    made = source(table)
    drive = SourceDrive(pickle.loads(pickle.dumps(made)))
    assert drive.run() == rows(range(10))
    state, _ = drive.snapshot()
    drive.close()
    made.enumerator_shape(state, "enumerator")
    assert made.schema == SCHEMA
