"""What of a sink's files is on disk when they are committed, should the power fail then."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.disk_log import DiskLog

from .tables import sink, visible_files
from .test_sink import SCHEMA, numbered, write


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
@pytest.mark.parametrize("keys", [(), ("name",)])
def test_rows_are_on_disk_before_their_file_has_its_name_and_then_its_name_is(
    format: str, keys: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = DiskLog(monkeypatch)
    out = tmp_path / "out"
    write(sink(out, format, SCHEMA, partition_keys=keys), numbered(0, 2))
    files = visible_files(out)
    assert len(files) == (2 if keys else 1)
    for file in files:
        assert log.content_at(file) < log.name_at(file)
        if keys:
            log.name_at(file.parent)
    log.name_at(out)
