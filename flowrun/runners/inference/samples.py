"""Samples of data whose columns nobody has declared: the first rows of some files of a folder, or of a topic's partitions."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.fs as pafs

from flowrun.connectors.filesystem.table_path import FoundFile, TablePath, compression_of, list_files, location_of
from flowrun.core.record import record
from flowrun.errors import PipelineError
from flowrun.runners.inference.value_types import from_texts

_MOST_FILES = 20
_MOST_BYTES = 64 << 20
"""Of a file of lines that are looked at."""
_FORMATS = {
    ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".pq": "parquet",
    ".orc": "orc", ".arrow": "arrow", ".feather": "arrow",
}  # fmt: skip
FORMATS = tuple(dict.fromkeys(_FORMATS.values()))
_PARTITION = re.compile(r"([^/=]+)=([^/]*)")
_NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@record
class Sample:
    """Rows of a source, as they are.

    Attributes:
        path: as the user wrote it.
        format: of the files.
        options: of the format, beside its defaults.
        parts: rows of each file, in its order.
        partition_by: columns that are in the names of folders.
        schema: of formats that have one; None: the rows say what there is.
        files: how many there are.
    """

    path: str
    format: str
    parts: tuple[tuple[dict[str, Any], ...], ...]
    options: tuple[tuple[str, str], ...] = ()
    partition_by: tuple[str, ...] = ()
    schema: pa.Schema | None = None
    files: int = 1

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Of all parts."""
        return [row for part in self.parts for row in part]


def sample_files(path: str, form: str | None, rows: int) -> Sample:
    """A sample of files.

    Args:
        path: of a file, folder or glob, local or a URI.
        form: their format; None: their names say it.
        rows: how many rows to look at, about.

    Raises:
        ConnectorError: there is nothing there, or it cannot be read.
        PipelineError: its format is not known, or it is not of that format.
    """
    location = location_of(path)
    found = [file for file in list_files(location, None) if file.size]
    if not found:
        raise PipelineError.of(f"there is no file with data in '{path}'")
    form = form or _format_of(path, found)
    filesystem, base = location.open()
    chosen = found[:: max(1, len(found) // _MOST_FILES)][:_MOST_FILES]
    each = max(1, rows // len(chosen))
    names = tuple(dict.fromkeys(name for name, _ in _partitions(chosen[0].path, base)))
    parts: list[tuple[dict[str, Any], ...]] = []
    schema: pa.Schema | None = None
    options: tuple[tuple[str, str], ...] = ()
    for file in chosen:
        if form in ("json", "csv"):
            text = _head(filesystem, file)
            read, options = (_json(file.path, text, each), ()) if form == "json" else _csv(file.path, text, each)
        else:
            read, schema = _typed(filesystem, file, form, each)
        folders = dict(_partitions(file.path, base))
        parts.append(tuple({**r, **{n: folders.get(n) for n in names}} for r in read))
    if names:
        parts = _typed_partitions(parts, names)
    return Sample(path, form, tuple(parts), options, names, schema, len(found))


def _format_of(path: str, files: Sequence[FoundFile]) -> str:
    for file in files:
        suffixes = PurePosixPath(file.path).suffixes
        for suffix in reversed(suffixes):
            if suffix.lower() in _FORMATS:
                return _FORMATS[suffix.lower()]
    raise PipelineError.of(
        f"'{path}': the names of the files do not tell their format", f"give it: --format {'|'.join(FORMATS)}"
    )


def _head(filesystem: pafs.FileSystem, file: FoundFile) -> str:
    with filesystem.open_input_stream(file.path, compression=compression_of(file.path)) as stream:
        data: bytes = stream.read(_MOST_BYTES)
    if len(data) == _MOST_BYTES:
        data = data[: data.rfind(b"\n") + 1]
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PipelineError.of(f"{file.path}: byte {error.start} is no UTF-8 text") from None


def _json(name: str, text: str, most: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(io.StringIO(text), 1):
        if len(rows) == most:
            break
        if not line.strip():
            continue
        try:
            value = orjson.loads(line)
        except ValueError as error:
            hint = "each line is one JSON object; `jq -c '.[]'` makes such lines of an array, `jq -c .` of objects over several lines"
            raise PipelineError.of(f"{name}, line {number}: {error}", hint) from None
        if not isinstance(value, dict):
            raise PipelineError.of(f"{name}, line {number} is no JSON object", "each line is one JSON object")
        rows.append(value)
    return rows


def _csv(name: str, text: str, most: int) -> tuple[list[dict[str, Any]], tuple[tuple[str, str], ...]]:
    head = text[: 64 << 10]
    first = head.partition("\n")[0]
    delimiter = max(",;\t|", key=first.count)
    try:
        lines = list(_first(csv.reader(io.StringIO(text), delimiter=delimiter, strict=True), most + 1))
    except csv.Error as error:
        raise PipelineError.of(f"{name} is no CSV: {error}") from None
    options = [("csv.field-delimiter", delimiter)] if delimiter != "," else []
    header = _is_header(lines)
    if header:
        options.append(("csv.header", "true"))
    names = lines[0] if header else [f"f{i}" for i in range(1, len(lines[0]) + 1)]
    columns = {
        column: [line[i] if i < len(line) and line[i] != "" else None for line in lines[header:]]
        for i, column in enumerate(names)
    }
    parsed = from_texts(columns)
    return [dict(zip(parsed, row, strict=True)) for row in zip(*parsed.values(), strict=True)], tuple(options)


def _is_header(lines: Sequence[Sequence[str]]) -> bool:
    """Whether the first line has names: different, none of them a number, while a line below has one, or all look like names."""
    first = lines[0]
    if len(set(first)) < len(first) or not all(first) or any(re.fullmatch(r"[-+.\d]+", f) for f in first):
        return False
    below = any(re.fullmatch(r"-?\d+(\.\d+)?|\d{4}-\d\d-\d\d.*", value) for line in lines[1:] for value in line)
    return below or all(re.fullmatch(r"[A-Za-z_][\w .-]*", name) for name in first)


def _first(lines: Iterator[list[str]], most: int) -> Iterator[list[str]]:
    for number, line in enumerate(lines):
        if number == most:
            return
        if line:
            yield line


def _typed(
    filesystem: pafs.FileSystem, file: FoundFile, form: str, most: int
) -> tuple[list[dict[str, Any]], pa.Schema]:
    """Rows and the schema of a file that has one."""
    try:
        with filesystem.open_input_file(file.path) as opened:
            table = _table(opened, form, most)
    except pa.ArrowException as error:
        raise PipelineError.of(f"{file.path} is no file of format '{form}': {error}") from None
    return table.slice(0, most).to_pylist(), table.schema


def _table(opened: pa.NativeFile, form: str, most: int) -> pa.Table:
    if form == "parquet":
        import pyarrow.parquet as pq

        parquet = pq.ParquetFile(opened)
        batches = []
        for batch in parquet.iter_batches(most):
            batches.append(batch)
            break
        return pa.Table.from_batches(batches, parquet.schema_arrow)
    if form == "orc":
        from pyarrow import orc

        stripes = orc.ORCFile(opened)
        return pa.Table.from_batches([stripes.read_stripe(0)] if stripes.nstripes else [], stripes.schema)
    reader = pa.ipc.open_file(opened)
    return pa.Table.from_batches([reader.get_batch(0)] if reader.num_record_batches else [], reader.schema)


def _partitions(path: str, base: str) -> Iterator[tuple[str, str | None]]:
    below = path.removeprefix(base.rstrip("/"))
    for folder in below.split("/")[:-1]:
        if found := _PARTITION.fullmatch(folder):
            yield found[1], None if found[2] == _NO_PARTITION else found[2]


def _typed_partitions(
    parts: Sequence[tuple[dict[str, Any], ...]], names: Sequence[str]
) -> list[tuple[dict[str, Any], ...]]:
    rows = [r for part in parts for r in part]
    typed = from_texts({name: [r[name] for r in rows] for name in names})
    for name, values in typed.items():
        for r, value in zip(rows, values, strict=True):
            r[name] = value
    return list(parts)


def local_name(path: str) -> str:
    """A name for a table of what is at a path.

    >>> local_name("data/2024/orders-*.json.gz"), local_name("s3://bucket/Click Events/"), local_name("*.json")
    ('orders', 'click_events', 'rows')
    """
    parts = [p for p in TablePath(path).text.split("/") if p and "=" not in p and p not in (".", "..")]
    last = next((p for p in reversed(parts) if re.sub(r"[*?\[].*|\..*", "", p)), "rows")
    name = re.sub(r"\W+", "_", re.sub(r"[*?\[].*|\..*", "", last)).strip("_").lower()
    name = re.sub(r"_?\d+$", "", name)
    return name if name and not name[0].isdigit() else "rows"
