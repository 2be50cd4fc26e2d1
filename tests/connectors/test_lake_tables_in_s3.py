"""Delta and Iceberg tables in an object store: written, changed and read there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from flowrun.api.sink import Sink
from flowrun.api.source import Source
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.errors import ConnectorError
from flowrun.plan.nodes import TableReference
from flowrun.plan.tables import create_sink, create_source
from flowrun.testing.connector_conformance import Rows, SourceDrive, check_sink, writer_context
from tests.servers.s3 import ACCESS_KEY, SECRET_KEY, S3Server

pytestmark = pytest.mark.exhaustive

SCHEMA = Schema.of(id=BIGINT, v=STRING)


def delta(endpoint: str, bucket: str, _: Path) -> dict[str, object]:
    return {
        "table-path": f"s3://{bucket}/tables/t",
        "storage-options.AWS_REGION": "us-east-1",
        "storage-options.AWS_ENDPOINT_URL": endpoint,
        "storage-options.AWS_ALLOW_HTTP": "true",
        "storage-options.AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "storage-secrets.AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }


def iceberg(endpoint: str, bucket: str, folder: Path) -> dict[str, object]:
    return {
        "catalog-name": "lake",
        "catalog-type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"s3://{bucket}/warehouse",
        "catalog-options.s3.endpoint": endpoint,
        "catalog-options.s3.region": "us-east-1",
        "catalog-options.s3.access-key-id": ACCESS_KEY,
        "catalog-secrets.s3.secret-access-key": SECRET_KEY,
    }


OPTIONS = {"delta": delta, "iceberg": iceberg}


def batch(*rows: tuple[int, str | None]) -> RecordBatch:
    columns = {"id": [i for i, _ in rows], "v": [v for _, v in rows]}
    return RecordBatch(pa.record_batch(columns, SCHEMA.arrow))


def sink(kind: str, options: dict[str, object], keys: tuple[str, ...] = (), partitions: tuple[str, ...] = ()) -> Sink:
    table = TableReference("t", kind, options, primary_key=keys, partition_keys=partitions)
    return create_sink(table, SCHEMA, unbounded=False, updating=bool(keys))


def read(kind: str, options: dict[str, object]) -> Rows:
    source: Source = create_source(TableReference("t", kind, options), SCHEMA)
    drive = SourceDrive(source)
    try:
        return drive.run()
    finally:
        drive.close()


@pytest.mark.parametrize("kind", OPTIONS)
def test_rows_are_appended_once_and_changed_by_key(s3: S3Server, tmp_path: Path, kind: str) -> None:
    options = OPTIONS[kind](s3.endpoint, s3.create_bucket(), tmp_path)
    made = sink(kind, options, partitions=("v",))
    writer = made.create_writer(writer_context(attempt="makes the table"))
    writer.open()
    writer.close()
    check_sink(made, [batch((1, "a b")), batch((2, "c/d=%"), (3, None))], lambda: read(kind, options))
    keyed = sink(kind, options, keys=("id",))
    writer = keyed.create_writer(writer_context(attempt="changes"))
    writer.open()
    writer.write(batch((1, "new"), (4, "d")))
    changes = keyed.create_committer()
    assert changes is not None
    changes.commit(list(writer.prepare_commit()))
    writer.close()
    assert sorted({(i, v or "") for i, v in read(kind, options)}) == [(1, "new"), (2, "c/d=%"), (3, ""), (4, "d")]


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_store_that_cannot_be_reached_is_told_with_its_cause(tmp_path: Path, kind: str) -> None:
    options = OPTIONS[kind]("http://127.0.0.1:1", "bucket", tmp_path)
    with pytest.raises(ConnectorError, match=r"(?i)connection refused|could not connect") as caught:
        sink(kind, options).create_writer(writer_context()).open()
    assert "\x1b" not in str(caught.value)
    assert SECRET_KEY not in str(caught.value)
