"""Files of blocking partitions: read by whoever finds them, if they are whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runtime_fakes import random_rows, rows

from flowrun.core.elements import END_OF_INPUT, RecordBatch, Watermark, concat_batches
from flowrun.errors import PartitionLostError
from flowrun.graph.execution_graph import PartitionId
from flowrun.runtime.network.blocking import BlockingSubpartition, StoredPartition
from flowrun.runtime.network.buffer_pool import SLOT_BYTES
from flowrun.runtime.network.partition_files import SubpartitionPath, check_all, checksum, remove_partition
from flowrun.runtime.network.subpartition import ANY_CREDIT, Data
from tests.examples import examples

PARTITION = PartitionId("d-e-0", 3)


def write(folder: Path, attempt: str = "first", index: int = 0, batches: int = 3) -> SubpartitionPath:
    place = SubpartitionPath(folder, PARTITION, attempt, index)
    written = BlockingSubpartition(place)
    for seed in range(batches):
        written.add(random_rows(9_000, seed), 0, 0)
    written.add_event(Watermark(5))
    written.add_event(END_OF_INPUT)
    written.finish()
    return place


def read(
    folder: Path, attempt: str = "first", index: int = 0, credit: int = ANY_CREDIT
) -> tuple[RecordBatch, list[Data]]:
    view = StoredPartition(folder, PARTITION, attempt).create_view(index, lambda: None)
    found = []
    while (element := view.poll(1, credit)) is not None:
        if isinstance(element, Data):
            found.append(element)
    view.release()
    return concat_batches([batch for data in found for batch in data.batches]), found


def test_whoever_finds_a_file_reads_what_was_written(tmp_path: Path) -> None:
    write(tmp_path)
    assert read(tmp_path)[0] == concat_batches([random_rows(9_000, seed) for seed in range(3)])


def test_a_reader_gets_no_more_at_once_than_it_has_credit_for(tmp_path: Path) -> None:
    write(tmp_path)
    whole, found = read(tmp_path, credit=2)
    assert whole == concat_batches([random_rows(9_000, seed) for seed in range(3)])
    assert all(sum(b.nbytes for b in data.batches) <= 2 * SLOT_BYTES for data in found)
    assert all(data.slots <= 2 for data in found)
    assert [data.sequence for data in found] == list(range(len(found)))
    assert all(data.more for data in found)
    assert found[0].backlog > 2, "the reader is told how much credit it needs"


def test_what_has_no_rows_can_be_read_too(tmp_path: Path) -> None:
    write(tmp_path, batches=0)
    view = StoredPartition(tmp_path, PARTITION, "first").create_view(0, lambda: None)
    assert [view.poll(1).event for _ in range(2)] == [Watermark(5), END_OF_INPUT]  # type: ignore[union-attr]
    assert view.poll(1) is None


def test_an_attempt_is_never_taken_for_another(tmp_path: Path) -> None:
    write(tmp_path, "first")
    with pytest.raises(PartitionLostError, match="is gone"):
        read(tmp_path, "second")


def test_a_file_whose_writer_died_is_not_read(tmp_path: Path) -> None:
    place = SubpartitionPath(tmp_path, PARTITION, "first", 0)
    written = BlockingSubpartition(place)
    written.add(random_rows(20_000), 0, 0)
    assert place.path.exists()
    with pytest.raises(PartitionLostError, match="was not finished"):
        read(tmp_path)
    written.release()
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_is_over_is_written_nothing_for(tmp_path: Path) -> None:
    gone = SubpartitionPath(tmp_path / "job", PARTITION, "first", 0)
    with pytest.raises(Exception, match="cannot spill rows between two stages"):
        BlockingSubpartition(gone).add(random_rows(20_000), 0, 0)
    assert list(tmp_path.iterdir()) == []


@examples(25)
@given(position=st.integers(0, 10**9), bit=st.integers(0, 7))
def test_every_changed_bit_is_noticed(tmp_path_factory: pytest.TempPathFactory, position: int, bit: int) -> None:
    folder = tmp_path_factory.mktemp("files")
    content = bytearray(write(folder, batches=1).path.read_bytes())
    content[position % len(content)] ^= 1 << bit
    write(folder, batches=0).path.write_bytes(content)
    with pytest.raises(PartitionLostError):
        read(folder)


@examples(25)
@given(size=st.integers(0, 10**9), more=st.booleans())
def test_a_file_that_is_shorter_or_longer_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, size: int, more: bool
) -> None:
    folder = tmp_path_factory.mktemp("files")
    path = write(folder, batches=1).path
    content = path.read_bytes()
    path.write_bytes(content + b"x" if more else content[: size % len(content)])
    with pytest.raises(PartitionLostError, match=r"was not finished|damaged"):
        read(folder)


def test_damage_while_a_file_is_read_is_noticed_and_no_wrong_row_comes(tmp_path: Path) -> None:
    path = write(tmp_path).path
    view = StoredPartition(tmp_path, PARTITION, "first").create_view(0, lambda: None)
    first = view.poll(1)
    assert isinstance(first, Data)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size * 5 // 6)
        file.write(b"nonsense")
    view.poll(1)
    with pytest.raises(PartitionLostError, match="what is read is not what was written"):
        view.poll(1)


def test_all_that_is_lost_is_named_at_once(tmp_path: Path) -> None:
    places = [SubpartitionPath(tmp_path, PartitionId("d-e-0", n), "first", 0) for n in range(3)]
    for place in places[:1]:
        BlockingSubpartition(place).finish()
    with pytest.raises(PartitionLostError) as caught:
        check_all(places)
    assert caught.value.subtasks == (1, 2)


def test_files_of_an_attempt_and_edge_are_removed_by_anybody(tmp_path: Path) -> None:
    write(tmp_path, "first", 0)
    write(tmp_path, "first", 1)
    kept = write(tmp_path, "second", 0)
    other = SubpartitionPath(tmp_path, PartitionId("d-e-0", 30), "first", 0)
    BlockingSubpartition(other).finish()
    for _ in range(2):
        remove_partition(tmp_path, PARTITION, "first")
        assert sorted(p for p in tmp_path.rglob("*") if p.is_file()) == sorted([kept.path, other.path])


def test_a_checksum_sees_where_bytes_are_within_a_word() -> None:
    assert checksum(b"ab") != checksum(b"ba")
    assert checksum(b"") == 0
    assert rows([1]).num_rows == 1
