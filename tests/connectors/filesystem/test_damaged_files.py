"""Damaged files of a source: an error that no restart can mend, unless somebody may still be writing the file."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.errors import ConnectorError
from tests.connectors.filesystem.tables import read, source, visible_files
from tests.connectors.filesystem.test_whole_files import FORMATS, SCHEMA, batch, write

LONG_AGO_S = time.time() - 3600


def damage(file: Path, content: bytes, *, changed_at_s: float = LONG_AGO_S) -> None:
    file.write_bytes(content)
    os.utime(file, (changed_at_s, changed_at_s))


def failure(path: Path, format: str, options: dict[str, str], schema: Schema = SCHEMA) -> ConnectorError:
    with pytest.raises(ConnectorError) as raised:
        read(source(path, format, schema, options))
    return raised.value


@pytest.mark.parametrize("format", ["parquet", *FORMATS])
@pytest.mark.parametrize("options", [{}, {"source.split-size": "1kb"}])
def test_a_truncated_file_is_told_once_and_for_all(tmp_path: Path, format: str, options: dict[str, str]) -> None:
    write(tmp_path, format, batch(0, 500))
    (file,) = visible_files(tmp_path)
    whole = file.read_bytes()
    for size in (0, 3, len(whole) // 2, len(whole) - 3):
        damage(file, whole[:size])
        error = failure(tmp_path, format, options)
        assert error.retryable is False, error
        assert str(file) in error.message
        assert error.hint is not None
        assert "write it again" in error.hint


def test_damage_inside_a_file_is_told_once_and_for_all(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": range(5000), "name": ["x" * (i % 90) for i in range(5000)]}), file)
    content = bytearray(file.read_bytes())
    content[100:2000] = b"\x55" * 1900
    damage(file, bytes(content))
    error = failure(tmp_path, "parquet", {}, Schema.of(id=BIGINT, name=STRING))
    assert error.retryable is False
    assert "row group 0 cannot be read" in error.message
    write(tmp_path / "avro", "avro", batch(0, 500))
    (file,) = visible_files(tmp_path / "avro")
    content = bytearray(file.read_bytes())
    content[-40:-20] = bytes(20)
    damage(file, bytes(content))
    assert failure(tmp_path / "avro", "avro", {}).retryable is False


def test_a_damaged_archive_is_told_once_and_for_all(tmp_path: Path) -> None:
    packed = gzip.compress(b'{"id":1}\n' * 100_000)
    damage(tmp_path / "a.json.gz", packed[: len(packed) // 2])
    error = failure(tmp_path, "json", {}, Schema.of(id=BIGINT))
    assert error.retryable is False
    assert "a.json.gz cannot be decompressed" in error.message


@pytest.mark.parametrize("format", ["parquet", *FORMATS])
def test_a_file_that_was_just_changed_may_be_whole_in_a_moment(tmp_path: Path, format: str) -> None:
    write(tmp_path, format, batch(0, 500))
    (file,) = visible_files(tmp_path)
    whole = file.read_bytes()
    damage(file, whole[:-3], changed_at_s=time.time())
    choices: list[dict[str, str]] = [{}, {"source.split-size": "1kb"}]
    for options in choices:
        error = failure(tmp_path, format, options)
        assert error.retryable is None
        assert "may still be written" in error.message
        assert error.hint is not None
        assert "rename" in error.hint
    file.write_bytes(whole)
    assert len(read(source(tmp_path, format, SCHEMA))) == 500


def test_a_file_that_is_gone_or_a_store_that_fails_is_no_damage() -> None:
    from flowrun.connectors.formats.damage import is_damage

    assert not is_damage(FileNotFoundError(2, "No such file or directory"))
    assert not is_damage(OSError(5, "Input/output error"))
    assert not is_damage(
        OSError("When reading 'a': AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 28")
    )
    assert not is_damage(OSError("google::cloud::Status(UNAVAILABLE: try again)"))
    assert not is_damage(MemoryError())
    assert not is_damage(pa.ArrowMemoryError("malloc of size 1073741824 failed"))
    assert is_damage(OSError("Couldn't deserialize thrift: No more data to read."))
    assert is_damage(pa.ArrowInvalid("Parquet magic bytes not found in footer."))
