"""Avro object container files: read and written in every compression, resumed at any row, damaged ones told."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from flowrun.api.format import FileFormat, ReadRequest
from flowrun.connectors.formats.avro.container import BLOCK_BYTES, CODECS, MAX_BLOCK_BYTES
from flowrun.connectors.formats.avro.encoding import varints
from flowrun.connectors.formats.registry import file_format_named
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.errors import ConnectorError, DataError, FlowrunError

from ..formats import options_of
from .samples import EVERYTHING, as_dicts, sample_rows, their_schema


def container() -> FileFormat:
    found = file_format_named("avro")
    assert isinstance(found, FileFormat)
    return found


def written(
    columns: pa.RecordBatch, schema: Schema = EVERYTHING, codec: str = "snappy", batches: int = 1
) -> io.BytesIO:
    out = io.BytesIO()
    options = options_of("avro", avro__codec=codec, **{"avro.timestamp_mapping.legacy": "false"})
    writer = container().create_writer(out, schema, options)
    size = -(-columns.num_rows // batches)
    for begin in range(0, columns.num_rows, size):
        writer.write(columns.slice(begin, size))
    assert writer.written_bytes > 0
    writer.finish()
    return out


def read(
    file: io.BytesIO,
    schema: Schema = EVERYTHING,
    first: int = 0,
    row: int = 0,
    stop: int | None = None,
    batch: int = 70,
) -> pa.Table:
    reader = container().create_reader(ReadRequest(schema, schema, options_of("avro")))
    return pa.Table.from_batches(
        [r.columns for r in reader.read(file, "f.avro", first, row, stop, batch)], schema.arrow
    )


@pytest.mark.parametrize("codec", CODECS)
def test_every_compression_is_read_and_written(codec: str) -> None:
    columns = sample_rows(EVERYTHING, 150)
    file = written(columns, codec=codec, batches=3)
    assert read(file).equals(pa.Table.from_batches([columns]))
    if codec in ("null", "deflate", "bzip2", "xz"):  # fastavro needs other packages for the others
        file.seek(0)
        assert list(fastavro.reader(file)) == as_dicts(columns)
        theirs = io.BytesIO()
        fastavro.writer(theirs, their_schema(EVERYTHING), as_dicts(columns), codec=codec, sync_interval=3000)
        assert read(theirs).equals(pa.Table.from_batches([columns]))


def test_reading_goes_on_behind_any_batch_and_parts_are_the_whole() -> None:
    columns = sample_rows(EVERYTHING, 1100)
    file = written(columns, codec="null")
    assert file.tell() > 2 * BLOCK_BYTES
    reader = container().create_reader(ReadRequest(EVERYTHING, EVERYTHING, options_of("avro")))
    done = 0
    for run in list(reader.read(file, "f", 0, 0, None, 300)):
        done += run.columns.num_rows
        assert read(file, first=run.unit, row=run.row, batch=1000).equals(pa.Table.from_batches([columns.slice(done)]))
    parts = reader.parts(file, "f", BLOCK_BYTES)
    assert len(parts) > 1
    assert pa.concat_tables([read(file, first=p.first, stop=p.stop) for p in parts]).equals(
        pa.Table.from_batches([columns])
    )


def test_columns_are_found_by_name_in_files_of_other_schemas() -> None:
    file = written(sample_rows(EVERYTHING, 20))
    assert read(file, Schema.of(other=STRING, long=BIGINT)).column("other").null_count == 20
    with pytest.raises(DataError, match=r"f\.avro: field 'text': expected BIGINT, got string"):
        read(file, Schema.of(text=BIGINT))


def test_a_file_without_rows_is_read() -> None:
    file = io.BytesIO()
    container().create_writer(file, EVERYTHING, options_of("avro")).finish()
    assert read(file).num_rows == 0
    reader = container().create_reader(ReadRequest(EVERYTHING, EVERYTHING, options_of("avro")))
    assert sum(p.size for p in reader.parts(file, "f", 1)) == 0


def damaged(data: bytes) -> Iterator[bytes]:
    for size in (0, 3, 20, len(data) // 2, len(data) - 1):
        yield data[:size]
    for place in range(0, len(data), 37):
        yield data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :]


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy"])
def test_damaged_files_are_told_and_never_crash(codec: str) -> None:
    schema = EVERYTHING.select(["long", "text", "price", "numbers"])
    data = written(sample_rows(schema, 40), schema, codec).getvalue()
    for changed in damaged(data):
        try:
            read(io.BytesIO(changed), schema).validate(full=True)
        except FlowrunError as error:
            assert "f.avro" in error.message  # noqa: PT017 - a changed value may be one that is as good


@pytest.mark.exhaustive
def test_a_block_that_would_take_all_memory_is_refused() -> None:
    schema = Schema.of(text=STRING)
    data = written(pa.RecordBatch.from_pylist([{"text": "a"}], schema.arrow), schema, "deflate").getvalue()
    first_block = data.index(data[-16:]) + 16
    compressor = zlib.compressobj(wbits=-15)
    bomb = b"".join(compressor.compress(bytes(1 << 24)) for _ in range(MAX_BLOCK_BYTES // (1 << 24) + 1))
    bomb += compressor.flush()
    counts = b"".join(varints(np.array([1, len(bomb)])).to_pylist())
    with pytest.raises(ConnectorError, match="holds more than 256 MB"):
        read(io.BytesIO(data[:first_block] + counts + bomb + data[-16:]), schema)


def test_another_file_is_no_avro_file() -> None:
    with pytest.raises(ConnectorError, match=r"f\.avro is no Avro file or is truncated: it does not begin with Obj"):
        read(io.BytesIO(b"PAR1 and so on"))
