"""Payloads in memory that two processes have mapped: whole, never overwritten while somebody sees them, and never waited for."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from flowrun.core.elements import RecordBatch
from flowrun.errors import ClusterError
from flowrun.runtime.network.batches import BatchDecoder, BatchEncoder
from flowrun.runtime.network.remote import shared_memory
from flowrun.runtime.network.remote.shared_memory import (
    SegmentAnnounced,
    SegmentBudget,
    SegmentReader,
    SegmentWriter,
    SharedPayload,
)

MB = 1 << 20


def pair(size: int = MB) -> tuple[SegmentWriter, SegmentReader]:
    """A writer and a reader with one segment."""
    writer, reader = SegmentWriter(SegmentBudget()), SegmentReader()
    add_segment(writer, reader, size)
    return writer, reader


def add_segment(writer: SegmentWriter, reader: SegmentReader, size: int) -> SegmentAnnounced:
    announced = writer.announce(size)
    assert announced is not None
    assert reader.map(announced)
    writer.answered(announced.number, opened=True)
    return announced


def content(number: int, size: int = MB) -> bytes:
    return random.Random(number).randbytes(size)


def put(writer: SegmentWriter, data: bytes) -> SharedPayload | None:
    return writer.put([data[:10], memoryview(data)[10:]], len(data))


def test_a_payload_is_read_as_it_was_written() -> None:
    writer, reader = pair()
    place = put(writer, content(1))
    assert place is not None
    assert reader.payload(place).to_pybytes() == content(1)


def test_a_segment_is_not_used_again_before_the_last_view_is_gone() -> None:
    writer, reader = pair()
    place = put(writer, content(1))
    assert place is not None
    payload = reader.payload(place)
    view = pa.py_buffer(payload.slice(100, 50))
    array = pa.Array.from_buffers(pa.int8(), 50, [None, payload.slice(500, 50)])
    seen = array.slice(3).to_numpy()
    for kept in ("payload", "view", "array"):
        assert reader.take_freed() == []
        assert put(writer, content(2)) is None
        if kept == "payload":
            del payload
        elif kept == "view":
            del view
        else:
            del array
        gc.collect()
    assert seen.tobytes() == content(1)[503:550]
    del seen
    gc.collect()
    (freed,) = reader.take_freed()
    writer.free(freed)
    again = put(writer, content(2))
    assert again is not None
    assert reader.payload(again).to_pybytes() == content(2)


def test_batches_are_views_of_the_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "SHORTEST_BYTES", 1)
    writer, reader = pair()
    batch = RecordBatch(pa.record_batch({"k": pa.array(range(1000)), "v": [f"row {i}" for i in range(1000)]}))
    encoder, decoder = BatchEncoder(), BatchDecoder()
    schema = encoder.new_schema(batch)
    assert schema is not None
    decoder.set_schema(schema.serialize())
    pieces = encoder.payload([batch])
    place = writer.put(pieces, sum(len(p) for p in pieces))
    assert place is not None
    (read,) = decoder.batches(reader.payload(place))
    assert read.columns.equals(batch.columns)
    kept = read.columns.slice(990)
    del read
    gc.collect()
    assert reader.take_freed() == []
    assert kept.to_pydict()["v"][0] == "row 990"


def test_the_smallest_segment_that_fits_is_taken() -> None:
    writer, reader = pair(8 * MB)
    large = put(writer, content(1))
    assert large is not None
    small = add_segment(writer, reader, MB)
    writer.free(large.segment)
    place = put(writer, content(1))
    assert place is not None
    assert place.segment == small.number


@pytest.mark.parametrize("size", [0, 1000, 64 * MB])
def test_short_and_very_long_payloads_go_through_the_socket(size: int) -> None:
    writer, _ = pair(8 * MB)
    assert writer.put([bytes(size)], size) is None
    assert writer.announce(size) is None


def test_one_segment_is_announced_at_a_time_and_all_of_a_process_are_bounded() -> None:
    budget = SegmentBudget(limit=3 * MB)
    first, second, reader = SegmentWriter(budget), SegmentWriter(budget), SegmentReader()
    announced = first.announce(MB)
    assert announced is not None
    assert first.announce(MB) is None, "the first one is not answered"
    first.answered(announced.number, opened=reader.map(announced))
    assert first.announce(MB) is None, "the first one is free"
    assert put(first, content(1)) is not None
    assert first.announce(MB) is not None
    assert second.announce(2 * MB) is None
    assert second.announce(MB) is not None
    assert second.announce(MB) is None
    first.close()
    first.close()
    third = SegmentWriter(budget)
    assert third.announce(2 * MB) is not None


def test_only_the_first_of_many_payloads_that_the_reader_keeps_goes_through_the_socket() -> None:
    writer, reader, kept = SegmentWriter(SegmentBudget()), SegmentReader(), []
    for number in range(20):
        kept.append(put(writer, content(number)))
        announced = writer.announce(MB)  # as the sender does behind each payload
        if announced is not None:
            writer.answered(announced.number, opened=reader.map(announced))
    assert [place is not None for place in kept] == [False] + [True] * 19
    places = [place for place in kept if place is not None]
    assert [reader.payload(place).to_pybytes() for place in places] == [content(number) for number in range(1, 20)]


def test_who_cannot_map_a_segment_is_offered_no_other() -> None:
    writer = SegmentWriter(SegmentBudget())
    announced = writer.announce(MB)
    assert announced is not None
    writer.answered(announced.number, opened=False)
    assert put(writer, content(1)) is None
    assert writer.announce(MB) is None


def test_a_system_without_such_memory_uses_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, flags: int) -> int:
        raise OSError("not here")

    monkeypatch.setattr(os, "memfd_create", refuse)
    budget = SegmentBudget(limit=MB)
    writer = SegmentWriter(budget)
    assert writer.announce(MB) is None
    assert budget.take(MB), "nothing is charged for what was not made"


def test_what_has_no_memory_goes_through_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    writer, reader = pair()

    def write_half(file: int, pieces: Sequence[bytes], start: int) -> int:
        return sum(len(piece) for piece in pieces) // 2

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", write_half)
        assert put(writer, content(1)) is None
    place = put(writer, content(2))
    assert place is not None
    assert reader.payload(place).to_pybytes() == content(2)


def test_payloads_of_many_pieces_are_written_whole_the_first_time_and_later() -> None:
    writer, reader = pair(2 * MB)
    for number in range(3):
        data = content(number)
        place = writer.put([memoryview(data)[i : i + 500] for i in range(0, len(data), 500)], len(data))
        assert place is not None
        assert reader.payload(place).to_pybytes() == data
        gc.collect()
        (freed,) = reader.take_freed()
        writer.free(freed)


def test_no_descriptor_stays_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    writer, reader = pair()
    assert put(writer, content(1)) is not None
    add_segment(writer, reader, MB)  # nothing is ever written to it
    writer.close()
    del writer, reader
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_nothing_else_is_mapped(tmp_path: Path) -> None:
    writer = SegmentWriter(SegmentBudget())
    announced = writer.announce(MB)
    assert announced is not None
    file = tmp_path / f"flowrun-{announced.token}"
    file.write_bytes(bytes(100))
    reader = SegmentReader()
    assert not reader.map(replace(announced, path=str(tmp_path / "nowhere")))
    assert not reader.map(replace(announced, path=str(file))), "of another size"
    assert not reader.map(replace(announced, token="0" * 16))
    assert not reader.map(replace(announced, size=2 * MB))
    assert reader.map(announced)


@pytest.mark.parametrize("place", [SharedPayload(2, 10), SharedPayload(1, MB + 1), SharedPayload(1, 0)])
def test_places_that_are_none_are_errors(place: SharedPayload) -> None:
    _, reader = pair()
    with pytest.raises(ClusterError, match="no payload"):
        reader.payload(place)


def test_answers_to_nothing_are_errors() -> None:
    writer, reader = pair()
    for call in (lambda: writer.free(1), lambda: writer.free(7), lambda: writer.answered(2, opened=True)):
        with pytest.raises(ClusterError, match="segment"):
            call()
    place = put(writer, content(1))
    assert place is not None
    writer.free(place.segment)
    with pytest.raises(ClusterError, match="not in use"):
        writer.free(place.segment)
    assert reader.take_freed() == []


def _write(pipe: Connection, seed: int) -> None:
    writer, chance = SegmentWriter(SegmentBudget()), random.Random(seed)
    for number in range(60):
        size = chance.randrange(shared_memory.SHORTEST_BYTES, 3 * MB)
        place = writer.put([content(number, size)], size)
        announced = writer.announce(size)
        pipe.send((number, size, place, announced))
        opened, freed = pipe.recv()
        if announced is not None:
            writer.answered(announced.number, opened=opened)
        for segment in freed:
            writer.free(segment)
    pipe.send(None)


@pytest.mark.parametrize("seed", range(2))
def test_two_processes_never_see_anything_else(seed: int) -> None:
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_write, args=(theirs, seed))
    process.start()
    theirs.close()
    reader, chance, shared = SegmentReader(), random.Random(seed), 0
    kept: list[tuple[int, np.ndarray]] = []
    while (came := ours.recv()) is not None:
        number, size, place, announced = came
        opened = announced is not None and reader.map(announced)
        if place is not None:
            shared += 1
            kept.append((number, np.frombuffer(reader.payload(place), np.uint8)))
            assert len(kept[-1][1]) == size
        while kept and chance.random() < 0.4:
            number, seen = kept.pop(chance.randrange(len(kept)))
            assert seen.tobytes() == content(number, len(seen))
            del seen
        ours.send((opened, reader.take_freed()))
    process.join()
    assert shared > 20
    for number, seen in kept:  # the writer is gone
        assert seen.tobytes() == content(number, len(seen))
