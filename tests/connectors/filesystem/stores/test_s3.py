"""Tables, and checkpoints, in a store that speaks S3: what is visible when, and exactly once over kills."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pytest

from flowrun.connectors.filesystem.connector import SINK_OPTIONS
from flowrun.connectors.filesystem.store_options import store_of
from flowrun.core.options import parse_options
from flowrun.errors import OptionError
from tests.servers.s3 import SECRET_KEY, S3Server

SCRIPT = """
SET 'execution.checkpointing.interval' = '300 ms';
CREATE TABLE numbers (id BIGINT, v STRING) WITH (
  'connector' = 'datagen', 'number-of-rows' = '{rows}', 'rows-per-second' = '{rate}',
  'fields.id.kind' = 'sequence', 'fields.id.start' = '0', 'fields.id.end' = '{last}');
CREATE TABLE written (id BIGINT, v STRING) WITH ({at}, 'path' = 's3://{bucket}/out/', 'format' = 'parquet');
INSERT INTO written SELECT * FROM numbers;
"""
COPY = """
CREATE TABLE written (id BIGINT, v STRING) WITH ({at}, 'path' = 's3://{bucket}/out/*.parquet', 'format' = 'parquet');
CREATE TABLE copied (id BIGINT) WITH ({at}, 'path' = 's3://{bucket}/copy/', 'format' = 'json');
INSERT INTO copied SELECT id FROM written WHERE id >= 10;
"""


def at(server: S3Server) -> str:
    given = {"connector": "filesystem", **server.options}
    return ", ".join(f"'{name}' = '{value}'" for name, value in given.items())


def ids(server: S3Server, folder: str, form: str) -> list[int]:
    found = server.filesystem().get_file_info(pafs.FileSelector(folder, allow_not_found=True))
    paths = [f.path for f in found if f.type == pafs.FileType.File and not f.base_name.startswith((".", "_"))]
    if not paths:
        return []
    return sorted(ds.dataset(paths, filesystem=server.filesystem(), format=form).to_table()["id"].to_pylist())


def command(folder: Path, server: S3Server, *arguments: str) -> subprocess.Popen[bytes]:
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "flowrun", *arguments],
            cwd=folder,
            stdout=log,
            stderr=log,
            env={**os.environ, **server.environment},
        )


@pytest.mark.exhaustive
def test_rows_are_written_and_read_with_the_options_of_the_table(s3: S3Server, tmp_path: Path) -> None:
    bucket = s3.create_bucket()
    for name, text in (("write", SCRIPT), ("copy", COPY)):
        script = text.format(bucket=bucket, at=at(s3), rows=1000, rate=1_000_000, last=999)
        (tmp_path / f"{name}.sql").write_text(script)
        process = command(tmp_path, s3, "run", f"{name}.sql", "--no-live")
        assert process.wait(120) == 0, (tmp_path / "log").read_text()
    assert ids(s3, f"{bucket}/out", "parquet") == list(range(1000))
    assert ids(s3, f"{bucket}/copy", "json") == list(range(10, 1000))
    assert SECRET_KEY not in (tmp_path / "log").read_text()


@pytest.mark.exhaustive
def test_a_job_that_is_killed_goes_on_from_checkpoints_in_the_store(s3: S3Server, tmp_path: Path) -> None:
    bucket, rows = s3.create_bucket(), 40_000
    (tmp_path / "write.sql").write_text(SCRIPT.format(bucket=bucket, at=at(s3), rows=rows, rate=4000, last=rows - 1))
    state = ("--set", f"settings.checkpoint.dir=s3://{bucket}/state", "--no-live", "--parallelism", "2")
    seen = 0
    for life in range(3):
        how = ("run",) if life == 0 else ("resume", "--from-savepoint", f"s3://{bucket}/state")
        process = command(tmp_path, s3, *how, "write.sql", *state)
        deadline = time.monotonic() + 120
        while len(ids(s3, f"{bucket}/out", "parquet")) <= seen:
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.kill()
        process.wait()
        seen = len(ids(s3, f"{bucket}/out", "parquet"))
    process = command(tmp_path, s3, "resume", "--from-savepoint", f"s3://{bucket}/state", "write.sql", *state)
    assert process.wait(240) == 0, (tmp_path / "log").read_text()
    assert ids(s3, f"{bucket}/out", "parquet") == list(range(rows))


@pytest.mark.parametrize(
    ("path", "given", "message"),
    [
        ("/tmp/x", {"s3.region": "eu-central-1"}, "is for paths that begin with s3://"),
        ("s3://b/x?region=eu", {"s3.region": "eu-central-1"}, "cannot both be given"),
        ("s3://b/x", {"s3.access-key": "a"}, "are given together"),
        ("s3://b/x", {"s3.endpoint": "ftp://host"}, "is no address of a store"),
        ("s3://b/x", {"gs.endpoint": "http://host"}, "is for paths that begin with gs://"),
        ("gs://b/x", {"s3.endpoint": "http://host"}, "is for paths that begin with s3://"),
        ("gs://b/x", {"gs.endpoint": "http://host/path"}, "is no address of a store"),
        ("gs://b/x?scheme=http", {"gs.endpoint": "http://host"}, "cannot both be given"),
        ("s3://b/x", {"s3.endpoint": "http://h", "gs.endpoint": "http://h"}, "are of different stores"),
    ],
)
def test_options_that_do_not_go_together(path: str, given: dict[str, Any], message: str) -> None:
    options, problems = parse_options(SINK_OPTIONS, {"path": path, **given}, "t")
    assert not problems
    with pytest.raises(OptionError, match=message):
        store_of(options, path)


def test_a_store_shows_no_key() -> None:
    given = {"path": "s3://b/x", "s3.endpoint": "localhost:9000", "s3.access-key": "a", "s3.secret-key": SECRET_KEY}
    options, _ = parse_options(SINK_OPTIONS, given, "t")
    store = store_of(options, "s3://b/x")
    assert store is not None
    assert dict(store.arguments)["endpoint_override"] == "localhost:9000"
    assert SECRET_KEY not in repr(store)
