"""Metadata: read back as it was written, and never read when it is not."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from flowrun.api.state import KeyGroupRange, OperatorState, Redistribution
from flowrun.core.clock import ManualClock
from flowrun.core.elements import ACTIVE, IDLE, MAX_WATERMARK, CheckpointKind, LatencyMarker, RecordBatch, Watermark
from flowrun.errors import InternalError, StateError
from flowrun.state.checkpoints import (
    ChannelProgress,
    CheckpointMetadata,
    FileReference,
    InFlight,
    KeyedTableState,
    OperatorMetadata,
    OperatorSubtaskState,
    PipelineText,
    StateFile,
)
from flowrun.state.storage.folder import JobFolder, open_job_folder
from flowrun.state.storage.metadata_file import read_metadata, write_metadata
from flowrun.state.storage.state_path import resolve
from tests.examples import examples
from tests.state.storage.arrow_values import TYPES, columns
from tests.state.storage.jobs import COMMITTED_AFTER, metadata

TEXT = st.text(max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
FIXTURES = examples(20, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def tables(draw: st.DrawFn, rows: int | None = None) -> pa.Table:
    count = draw(st.integers(0, 3)) if rows is None else rows
    kinds = draw(st.lists(TYPES, min_size=1, max_size=2))
    return pa.table({f"c{i}": draw(columns(k, count)) for i, k in enumerate(kinds)})


@st.composite
def files(draw: st.DrawFn) -> StateFile:
    rows = draw(st.integers(1, 2**40))
    path, size = f"chk-1/{draw(st.uuids())}.parquet", draw(st.integers(1, 2**40))
    if draw(st.booleans()):
        return StateFile(path, size, rows, "crc32:00000000")
    return StateFile(path, size, rows, "crc32:00000000", KeyGroupRange(3, 5), (0, draw(st.integers(0, rows)), rows))


KEYED = st.builds(
    KeyedTableState,
    schema=tables(0).map(lambda t: t.schema),
    files=st.lists(
        st.builds(FileReference, files(), st.none() | st.lists(st.integers(0, 9), min_size=1).map(tuple)), max_size=2
    ).map(tuple),
    key=st.none() | st.just(("k",)),
)
OPERATOR_STATE = st.builds(OperatorState, tables(), st.sampled_from(Redistribution))


@st.composite
def operators(draw: st.DrawFn) -> OperatorMetadata:
    operator_id = draw(st.uuids()).hex
    subtasks = {
        n: OperatorSubtaskState(
            operator_id,
            draw(st.dictionaries(TEXT, KEYED, max_size=2)),
            draw(st.dictionaries(TEXT, OPERATOR_STATE, max_size=2)),
        )
        for n in draw(st.sets(st.integers(0, 3), max_size=2))
    }
    return OperatorMetadata(
        operator_id, draw(st.none() | TEXT), draw(TEXT), draw(TEXT), 4, 128, subtasks, draw(st.booleans()), draw(JSON)
    )


@st.composite
def batches(draw: st.DrawFn, schema_from: pa.Table) -> RecordBatch:
    rows = draw(st.integers(0, 3))
    arrays = [draw(columns(f.type, rows)) for f in schema_from.schema]
    numbers = st.lists(st.integers(-5, 5), min_size=rows, max_size=rows)
    timestamps = draw(st.none() | numbers.map(lambda n: pa.array(n, pa.int64())))
    kinds = draw(st.none() | numbers.map(lambda n: pa.array([abs(x) % 4 for x in n], pa.int8())))
    return RecordBatch(pa.RecordBatch.from_arrays(arrays, schema=schema_from.schema), timestamps, kinds)


@st.composite
def in_flights(draw: st.DrawFn) -> list[InFlight]:
    schema_from = draw(tables(0))
    events = st.sampled_from([IDLE, ACTIVE, MAX_WATERMARK, Watermark(-5)])
    return [
        InFlight(
            "exchange",
            channel,
            1,
            draw(st.booleans()),
            tuple(draw(st.lists(batches(schema_from) | events, max_size=4))),
        )
        for channel in range(draw(st.integers(0, 3)))
    ]


@st.composite
def metadatas(draw: st.DrawFn) -> CheckpointMetadata:
    ops = draw(st.lists(operators(), max_size=2))
    variables = draw(st.dictionaries(TEXT, TEXT, max_size=2))
    rows = draw(st.dictionaries(TEXT, st.integers(0, 2**60), max_size=2))
    pipeline = PipelineText(draw(TEXT), draw(st.text()), "/a", variables, {"a.b": "c"}, "/w", ("secret",), rows)
    return CheckpointMetadata(
        checkpoint_id=1,
        kind=draw(st.sampled_from(CheckpointKind)),
        triggered_ms=draw(st.integers(0, 2**43)),
        completed_ms=draw(st.integers(0, 2**62)),
        job_name=draw(TEXT),
        lineage=draw(st.uuids().map(lambda u: u.hex)),
        job_folder="/x",
        flowrun_version="1",
        pipeline=draw(st.none() | st.just(pipeline)),
        job_graph=draw(JSON),
        operators={o.operator_id: o for o in ops},
        in_flight=tuple(draw(in_flights())),
        progress=(ChannelProgress("exchange", 0, 1, -(2**63), True, False),),
        state_bytes=draw(st.integers(0, 2**60)),
        unaligned=draw(st.booleans()),
        drained=draw(st.booleans()),
        hooks=draw(st.dictionaries(TEXT, JSON, max_size=2)),
    )


def shown(value: Any) -> Any:
    """A metadata value as nested tuples that compare by what is in them (NaN is NaN, chunks do not matter)."""
    if isinstance(value, pa.Table):
        return value.schema.to_string(show_field_metadata=True), str(value.to_pydict())
    if isinstance(value, pa.RecordBatch):
        return shown(pa.Table.from_batches([value]))
    if isinstance(value, dict):
        return {k: shown(v) for k, v in value.items()}
    if isinstance(value, tuple):
        return tuple(shown(v) for v in value)
    if hasattr(value, "__slots__") and hasattr(value, "__dataclass_fields__"):
        return type(value), tuple(shown(getattr(value, name)) for name in value.__dataclass_fields__)
    return value


@FIXTURES
@given(data=st.data())
def test_what_is_written_is_read_back(tmp_path: Path, data: st.DataObject) -> None:
    expected = data.draw(metadatas())
    folder = resolve(str(tmp_path)) / f"job-{len(os.listdir(tmp_path))}" / "chk-1"
    folder.make_folder()
    named = write_metadata(folder, expected)
    back = read_metadata(folder.uri)
    assert shown(back) == shown(expected)
    prefix = "" if expected.kind is CheckpointKind.SAVEPOINT else "chk-1/"
    assert {prefix + e.name for e in folder.entries()} <= named


# ---- damage


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[JobFolder]:
    opened = open_job_folder(str(tmp_path), "my job", lineage="L", clock=ManualClock())
    yield opened
    opened.close()


def checkpoint(folder: JobFolder, number: int, **more: Any) -> Path:
    rows = pa.table({"path": ["a", "b"], "offset": [1, 2]})
    state = OperatorSubtaskState("a" * 32, {}, {"splits": OperatorState(rows)})
    target = folder.begin(number, CheckpointKind.CHECKPOINT, None)
    return Path(folder.finish(target, metadata(folder, number, state, **more)))


def test_a_folder_without_metadata_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=f"'{tmp_path}' is no complete checkpoint: it has no _metadata.json"):
        read_metadata(str(tmp_path))


def test_the_metadata_file_itself_may_be_named(folder: JobFolder) -> None:
    path = checkpoint(folder, 1)
    assert read_metadata(str(path / "_metadata.json")).checkpoint_id == 1


def test_every_truncation_and_every_flipped_bit_is_noticed(folder: JobFolder) -> None:
    file = checkpoint(folder, 1) / "_metadata.json"
    content = file.read_bytes()
    for position in range(0, len(content), 11):
        file.write_bytes(content[:position])
        with pytest.raises(StateError, match="truncated or altered"):
            read_metadata(str(file))
        altered = bytearray(content)
        altered[position] ^= 1 << (position % 7)
        file.write_bytes(altered)
        with pytest.raises(StateError, match=r"truncated or altered|is written in format"):
            read_metadata(str(file))


def test_a_damaged_checkpoint_offers_the_one_before(folder: JobFolder) -> None:
    one, two = checkpoint(folder, 1), checkpoint(folder, 2)
    (two / "_metadata.json").write_text("{")
    with pytest.raises(StateError, match=r"chk-2/_metadata\.json' is truncated") as error:
        read_metadata(str(two))
    assert error.value.hint == f"go on from another checkpoint: --from-savepoint {one}{COMMITTED_AFTER}"
    (one / "_metadata.json").unlink()
    with pytest.raises(StateError) as error:
        read_metadata(str(two))
    assert "has no complete checkpoint without it" in (error.value.hint or "")


def test_damaged_operator_state_offers_the_one_before(folder: JobFolder) -> None:
    one, two = checkpoint(folder, 1), checkpoint(folder, 2)
    (file,) = two.glob("*.parquet")
    content = bytearray(file.read_bytes())
    content[20] ^= 4
    file.write_bytes(content)
    with pytest.raises(StateError, match=r"my-op-aaaaaaaa-splits-\w+.parquet' is altered") as error:
        read_metadata(str(two))
    assert str(one) in (error.value.hint or "")


def test_edited_metadata_is_refused(folder: JobFolder) -> None:
    file = checkpoint(folder, 1) / "_metadata.json"
    file.write_text(json.dumps(json.loads(file.read_text())))
    with pytest.raises(StateError, match="its checksum is wrong"):
        read_metadata(str(file))


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (2, "is written in format 2, this flowrun reads up to 1"),
        (0, "is written in format 0, which no flowrun ever wrote; this one reads 1"),
    ],
)
@pytest.mark.parametrize("layout", ["as ours", "another"])
def test_other_formats_are_refused_by_their_number(folder: JobFolder, version: int, message: str, layout: str) -> None:
    file = checkpoint(folder, 1) / "_metadata.json"
    ours = file.read_text().replace('"format_version": 1', f'"format_version": {version}')
    file.write_text(ours if layout == "as ours" else json.dumps({"format_version": version, "new": True}))
    with pytest.raises(StateError, match=message) as error:
        read_metadata(str(file))
    assert version == 0 or error.value.hint == "upgrade flowrun"


@pytest.mark.parametrize("content", ["[]", "{}", '{"format_version": "1"}', '{"format_version": true}', "hello", ""])
def test_other_files_of_that_name_are_no_metadata(tmp_path: Path, content: str) -> None:
    (tmp_path / "_metadata.json").write_text(content)
    with pytest.raises(StateError, match="truncated or altered, or no metadata of a flowrun checkpoint"):
        read_metadata(str(tmp_path))


def test_the_text_is_for_people_too(folder: JobFolder) -> None:
    text = (checkpoint(folder, 1, job_graph={"vertices": [{"name": "Größe"}]}) / "_metadata.json").read_text()
    assert text.startswith('{\n  "format_version": 1,\n  "checksum": "sha256:')
    assert '"completed": "1970-01-01T00:00:02.000+00:00"' in text
    assert "Größe" in text
    assert json.loads(text)["operators"][0]["operator_state"][0]["rows"] == {"0": 2}


def test_no_field_of_metadata_is_forgotten(folder: JobFolder) -> None:
    document = json.loads((checkpoint(folder, 1) / "_metadata.json").read_text())
    assert {f.name for f in dataclasses.fields(CheckpointMetadata)} <= document.keys()
    assert {f.name for f in dataclasses.fields(OperatorMetadata)} <= document["operators"][0].keys()


def test_a_marker_in_flight_is_a_bug(folder: JobFolder) -> None:
    target = folder.begin(1, CheckpointKind.CHECKPOINT, None)
    flight = InFlight("exchange", 0, 0, True, (LatencyMarker(0, "s", 0),))
    with pytest.raises(InternalError, match="LatencyMarker is never stored"):
        folder.finish(target, metadata(folder, 1, OperatorSubtaskState("a" * 32), in_flight=(flight,)))
    assert os.listdir(target) == []
