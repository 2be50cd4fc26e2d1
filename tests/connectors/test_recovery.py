"""Where generated and watched sources go on after a restart: nothing twice, nothing left out, no burst."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrun.api.connector import TableDefinition
from flowrun.api.source import JsonValue, LooksAgain, Source, Split
from flowrun.connectors import nexmark
from flowrun.connectors.filesystem.seen_paths import SeenPaths, paths
from flowrun.connectors.listed_splits import ListedSplitEnumerator
from flowrun.core import types as t
from flowrun.core.clock import ManualClock
from flowrun.core.options import parse_options
from flowrun.core.schema import Schema
from flowrun.core.shapes import ShapeError
from flowrun.errors import StateError
from flowrun.testing.connector_conformance import SourceDrive, check_source
from tests.connectors.filesystem.tables import source as files
from tests.connectors.test_datagen import datagen
from tests.examples import examples

ID = Schema.of(id=t.BIGINT)
LINES = Schema.of(id=t.BIGINT)


def counting(**options: Any) -> Source:
    return datagen(ID, {"fields.id.kind": "sequence", "fields.id.start": 0, **options})


def ids(drive: SourceDrive) -> list[int]:
    return [i for batch in drive.emitted for i in batch.columns.column("id").to_pylist()]


def through_json(value: JsonValue) -> JsonValue:
    return json.loads(json.dumps(value))  # type: ignore[no-any-return]


@examples(30)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 60), st.integers(0, 30)), min_size=1, max_size=5),
    st.sampled_from([1, 7, 50]),
)
def test_an_endless_datagen_gives_every_id_once_over_any_number_of_restarts(
    runs: list[tuple[int, int, int]], batch_rows: int
) -> None:
    source = counting(**{"rows-per-second": 100})
    emitted: list[int] = []
    state: JsonValue = None
    splits: list[Split] = []
    for parallelism, polls, lost in runs:
        drive = SourceDrive(
            source, parallelism=parallelism, batch_rows=batch_rows, enumerator_state=state, restored=splits
        )
        drive.run(polls)
        emitted += ids(drive)
        state, splits = drive.snapshot()
        drive.run(lost)
        drive.close()
    rest = {i for s in splits for i in range(s.position["next"], s.position["stop"])}  # type: ignore[arg-type]
    given_out = range(state["next"])  # type: ignore[index,call-overload]
    assert sorted([*emitted, *rest]) == list(given_out)


def test_after_a_long_stop_the_rate_goes_on_without_a_burst() -> None:
    source = counting(**{"rows-per-second": 100})
    first = SourceDrive(source)
    while first.clock.now_ms() < 1_700_000_000_000 + 1_000:
        first.step()
    begun = len(ids(first))
    assert 90 <= begun <= 110
    state, splits = first.snapshot()
    second = SourceDrive(source, enumerator_state=state, restored=splits)
    second.clock.advance(0)
    second.step()
    assert len(ids(second)) <= 2, "an hour's rows are not owed"
    start = second.clock.now_ms()
    while second.clock.now_ms() < start + 1_000:
        second.step()
    assert 90 <= len(ids(second)) <= 112
    assert ids(first) + ids(second) == list(range(begun + len(ids(second))))


def test_blocks_of_several_subtasks_are_read_in_order_by_one() -> None:
    source = counting(**{"rows-per-second": 100})
    wide = SourceDrive(source, parallelism=4)
    wide.run(3)
    state, splits = wide.snapshot()
    assert len(splits) == 4
    narrow = SourceDrive(source, enumerator_state=state, restored=splits[::-1])
    narrow.run(200)
    assert ids(narrow) == sorted(ids(narrow)), "event time would go back otherwise"


def test_blocks_that_came_back_are_part_of_the_enumerators_state() -> None:
    source = counting(**{"number-of-rows": 1000, "rows-per-second": 100})
    enumerator = source.create_enumerator(2, ManualClock())
    blocks = [enumerator.next_split(0) for _ in range(3)]
    enumerator.add_splits_back([b for b in (blocks[2], blocks[0]) if b is not None])
    again = source.create_enumerator(1, ManualClock(), through_json(enumerator.snapshot()))
    assert [again.next_split(0), again.next_split(0)] == [blocks[0], blocks[2]]
    assert not again.exhausted


def test_relative_times_are_the_same_before_and_after_a_restart() -> None:
    schema = Schema.of(ts=t.timestamp(3))
    source = datagen(schema, {"number-of-rows": 300, "rows-per-second": 100})
    expected = SourceDrive(source).run()
    first = SourceDrive(source)
    rows = first.run(50)
    state, splits = first.snapshot()
    second = SourceDrive(source, enumerator_state=state, restored=splits)
    second.clock.advance(3_600_000)
    assert rows + second.run() == expected


@pytest.mark.exhaustive
def test_nexmark_keeps_the_contract() -> None:
    options, errors = parse_options(nexmark.CONNECTOR.source_options, {"events.num": 500}, "connector 'nexmark'")
    assert not errors
    assert nexmark.CONNECTOR.create_source is not None
    source = nexmark.CONNECTOR.create_source(
        TableDefinition("n", nexmark.SCHEMA.select(["event_type", "bid"]), options)
    )
    check_source(source, SourceDrive(source).run())


@pytest.mark.parametrize("options", [{"rows-per-second": 100}, {"rows-per-second": 10**9}], ids=str)
def test_datagen_keeps_the_contract(options: dict[str, Any]) -> None:
    source = counting(**{"number-of-rows": 700}, **options)
    check_source(source, [(i,) for i in range(700)])


@examples(25)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3), st.integers(0, 12)), min_size=1, max_size=6))
def test_a_watched_folder_is_read_once_whenever_files_come_and_jobs_stop(
    tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[int, int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("watched")
    source = files(folder, "json", LINES, {"source.monitor-interval": "1 s", "source.split-size": "40 b"})
    state: JsonValue = None
    splits: list[Split] = []
    emitted: list[int] = []
    written = 0
    for run, (parallelism, new_files, polls) in enumerate([*runs, (2, 0, 200)]):
        drive = SourceDrive(source, parallelism=parallelism, batch_rows=3, enumerator_state=state, restored=splits)
        drive.run(polls // 2)
        for number in range(new_files):
            written = write(folder / f"f{run}-{number}.json", written)
        drive.enumerator.discover()
        drive.run(polls)
        emitted += ids(drive)
        state, splits = drive.snapshot()
        for number in range(new_files):  # found or not, these belong to the next attempt: this one is lost
            written = write(folder / f"g{run}-{number}.json", written)
        drive.enumerator.discover()
        drive.run(2)
        drive.close()
    assert sorted(emitted) == list(range(written))


def write(path: Path, start: int) -> int:
    stop = start + 9
    path.write_text("".join(json.dumps({"id": i}) + "\n" for i in range(start, stop)))
    return stop


def test_watching_goes_on_from_what_a_bounded_run_has_read_and_the_other_way_round(tmp_path: Path) -> None:
    bounded = files(tmp_path, "json", LINES)
    watching = files(tmp_path, "json", LINES, {"source.monitor-interval": "1 s"})
    written, emitted, state = 0, [], None
    for source in (bounded, watching, bounded, watching):
        written = write(tmp_path / f"f{written}.json", written)
        drive = SourceDrive(source, enumerator_state=state)
        if state is not None:
            look_again(drive)
        drive.run(20)
        emitted += ids(drive)
        state, _ = drive.snapshot()
    assert emitted == list(range(written))


def look_again(drive: SourceDrive) -> list[str]:
    """What a new run does once its enumerator has started."""
    assert isinstance(drive.enumerator, LooksAgain)
    return [Path(path).name for path in drive.enumerator.look_again()]


def test_a_new_run_reads_files_that_came_and_none_of_those_that_were_seen(tmp_path: Path) -> None:
    source = files(tmp_path, "json", LINES)
    write(tmp_path / "a.json", 0)
    write(tmp_path / "b.json", 9)
    first = SourceDrive(source, batch_rows=5)
    first.run(3)
    emitted = ids(first)
    assert 0 < len(emitted) < 18
    state, splits = first.snapshot()
    write(tmp_path / "0 new.json", 18)
    (tmp_path / "a.json").write_text((tmp_path / "a.json").read_text() + '{"id": 1000}\n')
    again = SourceDrive(source, enumerator_state=state, restored=splits)
    assert look_again(again) == ["0 new.json"]
    assert look_again(again) == [], "it is known now"
    again.run()
    read = [i for i in ids(again) if i != 1000]  # a file that is being read is read to the end that it has then
    assert emitted + read == list(range(27)), "after what was left comes what came"
    state, _ = again.snapshot()
    (tmp_path / "b.json").write_text('{"id": 2000}\n')
    done = SourceDrive(source, enumerator_state=state)
    assert look_again(done) == []
    assert done.run() == [], "a file that was seen is not read again, whatever became of it"


def test_a_folder_that_is_gone_has_nothing_new(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in/a.json", 0)
    source = files(tmp_path / "in", "json", LINES)
    drive = SourceDrive(source)
    drive.run()
    state, _ = drive.snapshot()
    shutil.rmtree(tmp_path / "in")
    again = SourceDrive(source, enumerator_state=state)
    assert look_again(again) == []
    assert again.run() == []


def test_a_hundred_thousand_paths_are_a_small_part_of_a_checkpoint() -> None:
    paths = [f"/lake/events/day=2024-{i % 12 + 1:02}/part-{i:05}.json" for i in range(100_000)]
    seen = SeenPaths(paths)
    written = json.dumps(seen.snapshot())
    assert len(written) < 1_000_000
    assert seen.snapshot() is seen.snapshot(), "not made again for each checkpoint"
    restored = SeenPaths.restore(json.loads(written))
    assert restored == seen
    restored.add("/lake/new.json")
    assert "/lake/new.json" in SeenPaths.restore(restored.snapshot())
    assert "/lake/new.json" not in seen


@pytest.mark.parametrize("damaged", ["", "no base64!", "AAAA", "eJwrSS0uAQ", [1], {}, 7])
def test_paths_that_are_damaged_are_told_from_those_that_are_not(damaged: JsonValue) -> None:
    paths(SeenPaths(str(i) for i in range(5000)).snapshot(), "seen")
    paths(["/in/a"], "seen")
    with pytest.raises(ShapeError, match=r"^seen"):
        paths(damaged, "seen")


def test_watching_cannot_begin_from_a_state_that_does_not_know_what_was_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "a.json", 0)
    drive = SourceDrive(files(tmp_path, "json", LINES))
    drive.run()
    state, _ = drive.snapshot()
    assert isinstance(state, dict)
    state["seen"] = None  # as versions before wrote it
    watching = files(tmp_path, "json", LINES, {"source.monitor-interval": "1 s"})
    with pytest.raises(StateError, match="does not say which files were read to their end"):
        SourceDrive(watching, enumerator_state=state)
    write(tmp_path / "b.json", 9)
    bounded = SourceDrive(files(tmp_path, "json", LINES), enumerator_state=state)
    assert look_again(bounded) == []
    assert bounded.run() == []
    assert "does not say which files were read" in caplog.text
    assert bounded.snapshot()[0] == state


def test_a_socket_is_connected_to_again_by_whoever_gets_its_split() -> None:
    before = ListedSplitEnumerator([Split("localhost:9", {})])
    after = ListedSplitEnumerator([Split("localhost:9", {})], through_json(before.snapshot()))
    assert after.next_split(0) == Split("localhost:9", {})
    assert ListedSplitEnumerator([Split("localhost:9", {})], through_json(after.snapshot())).exhausted
