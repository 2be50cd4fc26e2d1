"""With a key everything in the state folder is covered by a signature: state files, notes of stops, logs of commits."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowrun.api.sink import Committable
from flowrun.api.state import KeyGroupRange
from flowrun.core.clock import ManualClock
from flowrun.core.elements import CheckpointKind
from flowrun.errors import StateError
from flowrun.runners.inspection.query import query_state
from flowrun.runners.inspection.verification import damaged_files
from flowrun.state.checkpoints import (
    FileReference,
    KeyedTableState,
    OperatorSubtaskState,
    StateFile,
)
from flowrun.state.commit_log import LoggedCommit, WentBack
from flowrun.state.storage.commit_log_files import CommitLogWriter, note_return, read_commit_logs
from flowrun.state.storage.folder import open_job_folder
from flowrun.state.storage.keyed_reader import read_keyed_rows
from flowrun.state.storage.locate import locate
from flowrun.state.storage.metadata_file import write_metadata
from flowrun.state.storage.parquet_read import StateFileReader
from flowrun.state.storage.parquet_write import write_keyed_rows
from flowrun.state.storage.state_path import resolve
from flowrun.state.storage.stop_note import STOP_NOTE_FILE, StopNote, read_stop_note, write_stop_note
from tests.state.storage.jobs import BAG, OPERATOR, metadata

KEY = "0123456789abcdef0123456789abcdef"
GROUPS = KeyGroupRange(0, 16)


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWRUN_STATE_KEY", KEY)


def balances(*values: int) -> pa.Table:
    rows = [{"__key_group": i % 16, "k": i, "v": v} for i, v in enumerate(values)]
    return pa.Table.from_pylist(rows, schema=BAG)


def written(path: Path, rows: pa.Table, note: str = "x" * 900) -> StateFile:
    return write_keyed_rows(resolve(str(path)), path.name, rows, ["k"], GROUPS, {"note": note})


def read(path: Path, file: StateFile) -> list[int]:
    with StateFileReader(resolve(str(path)), file) as reader:
        values: list[int] = reader.rows()["v"].to_pylist()
        return values


def forge(path: Path, rows: pa.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put other rows into a state file so that its size and the CRC-32 of its footer stay."""
    original = path.read_bytes()
    footer = original[-int.from_bytes(original[-8:-4], "little") - 8 :]
    with monkeypatch.context() as without_key:
        without_key.delenv("FLOWRUN_STATE_KEY", raising=False)
        path.unlink()
        short = path.with_name("short")
        missing = len(original) - written(short, rows, "x" * 500).size
        short.unlink()
        written(path, rows, "x" * (500 + missing))
    forged = path.read_bytes()
    assert len(forged) == len(original)
    begin = len(forged) - int.from_bytes(forged[-8:-4], "little") - 8
    at = forged.index(b"xxxxxxxxxxxx", begin) - begin
    path.write_bytes(forged[:begin] + with_crc(forged[begin:], at, zlib.crc32(footer)))


def with_crc(data: bytes, at: int, wanted: int) -> bytes:
    """The data with four bytes changed, so that it has this CRC-32: which bits change it is a linear map over bits, to be solved."""
    plain = bytearray(data)
    plain[at : at + 4] = bytes(4)
    base = zlib.crc32(plain)
    rows = []
    for bit in range(32):
        changed = plain.copy()
        changed[at : at + 4] = (1 << bit).to_bytes(4, "little")
        rows.append((zlib.crc32(changed) ^ base, 1 << bit))
    left, bits = wanted ^ base, 0
    for place in reversed(range(32)):
        pivot = next((r for r in rows if r[0] >> place & 1), None)
        if pivot is None:
            continue
        rows = [(a ^ pivot[0], b ^ pivot[1]) if a >> place & 1 else (a, b) for a, b in rows if (a, b) != pivot]
        if left >> place & 1:
            left, bits = left ^ pivot[0], bits ^ pivot[1]
    assert left == 0
    plain[at : at + 4] = bits.to_bytes(4, "little")
    return bytes(plain)


def test_without_a_key_a_file_can_be_forged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "balances.parquet"
    file = written(path, balances(1, 2, 3))
    assert file.checksum.startswith("crc32:")
    assert b"sha256" not in pq.read_metadata(path).metadata[b"flowrun.row_groups"]
    forge(path, balances(1, 2_000_000, 3), monkeypatch)
    assert read(path, file) == [1, 2_000_000, 3]


@pytest.mark.usefixtures("key")
def test_with_a_key_a_forged_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "balances.parquet"
    file = written(path, balances(1, 2, 3))
    assert read(path, file) == [1, 2, 3]
    forge(path, balances(1, 2_000_000, 3), monkeypatch)
    with pytest.raises(StateError, match=r"balances\.parquet' is altered: the checksum of its footer"):
        read(path, file)


@pytest.mark.usefixtures("key")
def test_with_a_key_a_row_group_that_keeps_its_crc_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "balances.parquet"
    file = written(path, balances(*range(1000)))
    content = path.read_bytes()
    (end,) = orjson.loads(pq.read_metadata(path).metadata[b"flowrun.row_groups"])["ends"]
    changed = bytearray(content[:end])
    changed[end // 2] ^= 0xFF
    path.write_bytes(with_crc(bytes(changed), end - 64, zlib.crc32(content[:end])) + content[end:])
    with pytest.raises(StateError, match="is altered between bytes 0 and"):
        read(path, file)


@pytest.mark.usefixtures("key")
def test_a_file_that_was_written_without_a_key_is_refused_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "balances.parquet"
    with monkeypatch.context() as without_key:
        without_key.delenv("FLOWRUN_STATE_KEY")
        file = written(path, balances(1))
    with pytest.raises(StateError, match="was written without a key: the signature of the metadata does not cover it"):
        read(path, file)


@pytest.mark.usefixtures("key")
def test_what_was_written_with_a_key_is_read_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "balances.parquet"
    file = written(path, balances(1, 2))
    monkeypatch.delenv("FLOWRUN_STATE_KEY")
    assert read(path, file) == [1, 2]


@pytest.mark.usefixtures("key")
def test_whoever_looks_into_a_savepoint_sees_no_forged_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "savepoint"
    place.mkdir()
    folder = open_job_folder(str(tmp_path / "jobs"), "my job", lineage="L", clock=ManualClock())
    path = place / "bag.parquet"
    table = KeyedTableState(BAG, (FileReference(written(path, balances(*range(100)))),))
    state = OperatorSubtaskState(OPERATOR, {"bag": table}, {})
    write_metadata(resolve(str(place)), metadata(folder, 1, state, kind=CheckpointKind.SAVEPOINT))
    folder.close()
    snapshot = locate(str(place))
    assert query_state(snapshot, 'SELECT sum(v) AS s FROM "my op"')["s"].to_pylist() == [4950]
    forge(path, balances(*range(100, 200)), monkeypatch)
    with pytest.raises(StateError, match="is altered"):
        query_state(snapshot, 'SELECT sum(v) AS s FROM "my op"')
    with pytest.raises(StateError, match="is altered"):
        read_keyed_rows((table,), None, resolve(str(place)))
    assert len(damaged_files(snapshot)) == 1


def test_a_footer_that_says_nothing_of_its_row_groups_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(balances(1), path)
    content = path.read_bytes()
    footer = content[-int.from_bytes(content[-8:-4], "little") - 8 :]
    file = StateFile("x.parquet", len(content), 1, f"crc32:{zlib.crc32(footer):08x}", GROUPS, (0,) + (1,) * 16)
    with pytest.raises(StateError, match="its footer does not say where row groups end"):
        read(path, file)


# ---- notes of stops and logs of commits


def stop_note(folder: Path) -> Path:
    write_stop_note(resolve(str(folder)), StopNote(7, "/savepoints/s7"))
    return folder / STOP_NOTE_FILE


def commit_log(folder: Path) -> Path:
    log = CommitLogWriter(resolve(str(folder)), "L", ())
    log.add([LoggedCommit(3, "o", "out", (Committable("part-0", {"to": "part-0"}),))])
    return next((folder / "_commits").iterdir())


def return_note(folder: Path) -> Path:
    note_return(resolve(str(folder)), "L", WentBack(3, 8))
    return next((folder / "_commits").iterdir())


def all_of(folder: Path) -> tuple[object, object]:
    return read_stop_note(resolve(str(folder))), read_commit_logs(resolve(str(folder)))


WRITERS = [stop_note, commit_log, return_note]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.usefixtures("key")
def test_a_signed_note_comes_back(
    write: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    found = all_of(tmp_path)
    monkeypatch.delenv("FLOWRUN_STATE_KEY")
    assert all_of(tmp_path) == found != (None, {})


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.usefixtures("key")
def test_an_altered_note_is_refused(write: Callable[[Path], Path], tmp_path: Path) -> None:
    path = write(tmp_path)
    text = (
        path.read_text()
        .replace("/savepoints/s7", "/savepoints/s8")
        .replace("part-0", "part-1")
        .replace('"to":3', '"to":1')
    )
    lines = text.splitlines(keepends=True)
    if path.suffix == ".jsonl":
        lines = [
            f"{zlib.crc32(body.encode()):08x} {body}\n"
            for body in (line.rstrip("\n").partition(" ")[2] for line in lines)
        ]
    path.write_text("".join(lines))
    with pytest.raises(StateError, match=r"the signature of .* is wrong"):
        all_of(tmp_path)


@pytest.mark.parametrize("write", WRITERS)
def test_a_note_without_signature_is_refused_with_a_key(
    write: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path)
    assert not re.search("signature", path.read_text())
    monkeypatch.setenv("FLOWRUN_STATE_KEY", KEY)
    with pytest.raises(StateError, match="is not signed, but FLOWRUN_STATE_KEY"):
        all_of(tmp_path)


@pytest.mark.usefixtures("key")
def test_a_signature_of_one_thing_is_none_of_another(tmp_path: Path) -> None:
    log = commit_log(tmp_path)
    signed = log.read_bytes().splitlines(keepends=True)
    other = return_note(tmp_path / "other")
    log.write_bytes(signed[0] + b"".join(other.read_bytes().splitlines(keepends=True)[1:]))
    with pytest.raises(StateError, match=r"the signature of .* is wrong"):
        read_commit_logs(resolve(str(tmp_path)))
