"""Samples of files: the first rows of some of them, of a disk or of a store."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import PurePosixPath
from urllib.parse import parse_qsl, unquote, urlsplit

import orjson
import pyarrow as pa
import pyarrow.fs as pafs

from flowrun.connectors.filesystem.table_path import (
    FoundFile,
    TablePath,
    check_exists,
    compression_of,
    list_files,
    location_of,
    open_error,
)
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import PipelineError
from flowrun.masking import learn_secrets_of_uri, masked
from flowrun.runners.inference.given_options import table_options
from flowrun.runners.inference.sample import NAMELESS, Asked, Row, Sample, name_for
from flowrun.runners.inference.value_types import from_texts

_MOST_FILES = 20
_MOST_BYTES = 16 << 20
"""Of a file of lines that are looked at."""
_FORMATS = {
    ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".pq": "parquet",
    ".orc": "orc", ".arrow": "arrow", ".feather": "arrow",
}  # fmt: skip
FORMATS = tuple(dict.fromkeys(_FORMATS.values()))
DELIMITERS = ",;\t|"
"""Of fields of CSV that are found out."""
_MAGIC = {b"PAR1": "parquet", b"ORC": "orc", b"ARROW1": "arrow", b"{": "json"}
"""How files begin."""
_STORES = ("s3://", "s3a://")
_OF_A_STORE = {"region": "s3.region", "endpoint_override": "s3.endpoint"}
_PARTITION = re.compile(r"([^/=]+)=([^/]*)")
_LONG_NUMBER = re.compile(r"\d{19}")
"""What may be a whole number of more than 64 bits, which only Python's own reader keeps whole."""
_ON_ERROR = "format.on-error"
_NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def sample_files(asked: Asked) -> Sample:
    """A sample of files.

    Args:
        asked: about a file, folder or glob, local or a URI.

    Raises:
        ConnectorError: a store has nothing there, or it cannot be read.
        OptionError: there is no such file or folder.
        PipelineError: its format is not known, or it is not of that format; an option is wrong.
    """
    if asked.form is not None and asked.form not in FORMATS:
        raise PipelineError.of(
            f"files of format '{asked.form}' do not tell their columns", f"one of {', '.join(FORMATS)} does"
        )
    path, of_store = _without_key(asked.place)
    asked = replace(asked, options={**of_store, **asked.options})
    store = replace(asked, options={n: v for n, v in asked.options.items() if n.startswith(("s3.", "gs."))})
    location = location_of(path, table_options(store, "filesystem", None, {"path": path}).values)
    check_exists(location)
    found = [file for file in list_files(location, None) if file.size]
    if not found:
        raise PipelineError.of(f"there is no file with data in '{path}'")
    filesystem, base = location.open()
    form = asked.form or _format_of(path, found, filesystem)
    chosen = found[:: max(1, len(found) // _MOST_FILES)][:_MOST_FILES]
    each = max(1, asked.rows // len(chosen))
    names = tuple(dict.fromkeys(name for name, _ in _partitions(chosen[0].path, base)))
    parts: list[tuple[Row, ...]] = []
    schema: Schema | None = None
    of_format: Mapping[str, str] = {}
    remarks: list[str] = []
    for file in chosen:
        try:
            found_rows = _first_rows(filesystem, file, form, each, asked)
        except OSError as error:
            raise open_error(file.path, error) from error
        except PipelineError as error:
            if asked.form is None and _format_by_name(file.path) != form:
                raise _other_kind(path, file.path, form, found) from error
            raise
        of_format, schema = found_rows.options, found_rows.schema
        remarks += found_rows.remarks
        folders = dict(_partitions(file.path, base))
        parts.append(tuple({**r, **{n: folders.get(n) for n in names}} for r in found_rows.rows))
    if names:
        parts = _typed_partitions(parts, names)
    own = {"path": asked.written_path(path) if location.is_local else path, **of_format}
    options = table_options(asked, "filesystem", form, own)
    written_path, *others = options.written
    return Sample(
        place=masked(path),
        name=local_name(path),
        connector="filesystem",
        options=(written_path, ("format", form), *others),
        parts=tuple(parts),
        looked_at=_looked_at(len(chosen), len(found)),
        schema=schema,
        partition_by=names,
        remarks=tuple(dict.fromkeys(remarks)),
        variables=options.variables,
    )


def _without_key(path: str) -> tuple[str, dict[str, str]]:
    """(a path, the options that its URI holds): the key of a store is no part of what is written down.

    >>> _without_key("s3://me:s%2Fcret@shop/orders?region=eu-central-1")
    ('s3://shop/orders', {'s3.access-key': 'me', 's3.secret-key': 's/cret', 's3.region': 'eu-central-1'})
    """
    parts = urlsplit(path) if path.startswith(_STORES) else None
    if parts is None or "@" not in parts.netloc:
        return path, {}
    learn_secrets_of_uri(path)
    key, _, bucket = parts.netloc.rpartition("@")
    name, _, secret = key.partition(":")
    options = {"s3.access-key": unquote(name), "s3.secret-key": unquote(secret)}
    given = dict(parse_qsl(parts.query))
    scheme = given.pop("scheme", None)
    for parameter, value in given.items():
        if parameter not in _OF_A_STORE:
            raise PipelineError.of(
                f"the parameter '{parameter}' of '{parts.scheme}://{bucket}{parts.path}' does not go with a key in the URI",
                "leave the key out of it: --with 's3.access-key=${AWS_ACCESS_KEY_ID}', and so on",
            )
        with_scheme = parameter == "endpoint_override" and scheme is not None
        options[_OF_A_STORE[parameter]] = f"{scheme}://{value}" if with_scheme else value
    return f"{parts.scheme}://{bucket}{parts.path}", options


def _looked_at(looked: int, there: int) -> str:
    if there == 1:
        return "1 file"
    return f"{looked} of {there} files" if looked < there else f"{looked} files"


def _format_of(path: str, files: Sequence[FoundFile], filesystem: pafs.FileSystem) -> str:
    for file in files:
        named = _format_by_name(file.path)
        if named is not None:
            return named
    try:
        with filesystem.open_input_stream(files[0].path, compression=compression_of(files[0].path)) as stream:
            head: bytes = stream.read(8)
    except OSError as error:
        raise open_error(files[0].path, error) from error
    for magic, form in _MAGIC.items():
        if head.startswith(magic):
            return form
    raise PipelineError.of(
        f"'{path}': neither the names of the files nor their first bytes tell their format",
        f"give it: --format {'|'.join(FORMATS)}",
    )


def _format_by_name(path: str) -> str | None:
    """The format that a file's name tells; None: it tells none."""
    suffixes = reversed(PurePosixPath(path).suffixes)
    return next((_FORMATS[s.lower()] for s in suffixes if s.lower() in _FORMATS), None)


def _other_kind(path: str, other: str, form: str, files: Sequence[FoundFile]) -> PipelineError:
    """The error of a file that lies among files with data, a README say."""
    data = next((file.path for file in files if _format_by_name(file.path) == form), None)
    hint = "name the files with data, or give their format with --format"
    if data is not None:
        suffixes = "".join(PurePosixPath(data).suffixes[-2 if compression_of(data) else -1 :])
        below = "" if PurePosixPath(data).parent.name == PurePosixPath(path).name else "**/"
        hint = f"name the files with data: flowrun infer '{path.rstrip('/')}/{below}*{suffixes}'"
    return PipelineError.of(f"{other} is no file of format '{form}', as others in '{path}' are", hint)


@record(eq=False)
class _FirstRows:
    """The first rows of a file.

    Attributes:
        options: of the format.
        schema: the columns, where the format has them.
        remarks: what people should know.
    """

    rows: list[Row]
    options: Mapping[str, str] = field(default_factory=dict)
    schema: Schema | None = None
    remarks: tuple[str, ...] = ()


def _first_rows(filesystem: pafs.FileSystem, file: FoundFile, form: str, most: int, asked: Asked) -> _FirstRows:
    if form == "json":
        return _json(file.path, _head(filesystem, file), most, skips=asked.options.get(_ON_ERROR, "fail") != "fail")
    if form == "csv":
        return _csv(file.path, _head(filesystem, file), most, asked.options.get("csv.field-delimiter"))
    rows, schema = _typed(filesystem, file, form, most)
    try:
        return _FirstRows(rows, schema=Schema.from_arrow(schema))
    except ValueError as error:
        raise PipelineError.of(f"{file.path}: {error}", "read a copy of it without such a column") from None


def _head(filesystem: pafs.FileSystem, file: FoundFile) -> str:
    with filesystem.open_input_stream(file.path, compression=compression_of(file.path)) as stream:
        data: bytes = stream.read(_MOST_BYTES)
    if len(data) == _MOST_BYTES:
        data = data[: data.rfind(b"\n") + 1]
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        marked = data.startswith((b"\xff\xfe", b"\xfe\xff"))
        hint = "it is UTF-16: `iconv -f UTF-16 -t UTF-8` makes UTF-8 of it" if marked else None
        raise PipelineError.of(f"{file.path}: byte {error.start} is no UTF-8 text", hint) from None


def _json(name: str, text: str, most: int, *, skips: bool) -> _FirstRows:
    """The rows of lines of JSON. `skips`: the table leaves out lines that are none; else one is an error."""
    rows: list[Row] = []
    unread = 0
    for number, line in enumerate(io.StringIO(text), 1):
        if len(rows) == most:
            break
        if not line.strip():
            continue
        value, problem = _json_value(line)
        if problem is None and isinstance(value, dict):
            rows.append(value)
        elif skips:
            unread += 1
        else:
            is_object = line.lstrip().startswith("{") and line.rstrip().endswith("}")
            raise _no_row(name, number, value, problem, may_go_on=not rows and not is_object)
    said = f"{name}: {unread:,} of its lines could not be read; `{_ON_ERROR}` says that this is no error."
    return _FirstRows(rows, remarks=(said,) if unread else ())


def _json_value(line: str) -> tuple[object, str | None]:
    """(the value of a line, what is wrong with it)."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return None, error.msg
    return json.loads(line) if _LONG_NUMBER.search(line) else value, None


def _no_row(name: str, number: int, value: object, problem: str | None, *, may_go_on: bool) -> PipelineError:
    """The error of a line that is no object; `may_go_on`: the whole file may be of another form, in which values go over lines."""
    file = shlex.quote(name.rpartition("/")[2])
    if problem is None and not isinstance(value, list):
        return PipelineError.of(f"{name}, line {number} is no JSON object", "each line is one JSON object")
    if may_go_on:
        ways = f"`jq -c '.[]' {file}` makes such lines of an array, `jq -c . {file}` of objects over several lines"
        hint = f"each line is one JSON object: {ways}"
    else:
        hint = f"correct the line, or leave such lines out: --with {_ON_ERROR}=skip"
    what = "is no JSON object, but an array" if problem is None else f"is no JSON: {problem}"
    return PipelineError.of(f"{name}, line {number} {what}", hint)


def _csv(name: str, text: str, most: int, delimiter: str | None) -> _FirstRows:
    first = text[: 64 << 10].partition("\n")[0]
    delimiter = delimiter or max(DELIMITERS, key=first.count)
    try:
        lines = list(_first(csv.reader(io.StringIO(text), delimiter=delimiter, strict=True), most + 1))
    except csv.Error as error:
        raise PipelineError.of(f"{name} is no CSV: {error}") from None
    options = {"csv.field-delimiter": delimiter} if delimiter != "," else {}
    header = _is_header(lines)
    if header:
        options["csv.header"] = "true"
    names = [n.strip() for n in lines[0]] if header else [f"f{i}" for i in range(1, len(lines[0]) + 1)]
    twice = {n: None for i, n in enumerate(names) if n and n in names[:i]}
    columns = {
        column: [line[i] if i < len(line) and line[i] != "" else None for line in lines[header:]]
        for i, column in enumerate(names)
        if column and column not in twice
    }
    remarks = [f"Column '{n}' stands twice in the first line and is left out: rename one of them." for n in twice]
    remarks += [NAMELESS] * (not all(names))
    parsed = from_texts(columns)
    rows = [dict(zip(parsed, row, strict=True)) for row in zip(*parsed.values(), strict=True)]
    return _FirstRows(rows, options, remarks=tuple(remarks))


def _is_header(lines: Sequence[Sequence[str]]) -> bool:
    """Whether the first line has names.

    None of them is a number, while a line below has one, or all look like names. Where one is empty, as that of an index often is, or two
    are alike, it takes both.
    """
    first = [name.strip() for name in lines[0]]
    named = [name for name in first if name]
    if not named or any(re.fullmatch(r"[-+.\d]+", name) for name in named):
        return False
    below = any(re.fullmatch(r"-?\d+(\.\d+)?|\d{4}-\d\d-\d\d.*", value) for line in lines[1:] for value in line)
    looks_so = all(re.fullmatch(r"[A-Za-z_][\w .-]*", name) for name in named)
    return (below and looks_so) if len(set(named)) < len(first) else (below or looks_so)


def _first(lines: Iterator[list[str]], most: int) -> Iterator[list[str]]:
    for number, line in enumerate(lines):
        if number == most:
            return
        if line:
            yield line


def _typed(filesystem: pafs.FileSystem, file: FoundFile, form: str, most: int) -> tuple[list[Row], pa.Schema]:
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


def _typed_partitions(parts: Sequence[tuple[Row, ...]], names: Sequence[str]) -> list[tuple[Row, ...]]:
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
    name = re.sub(r"_?\d+$", "", re.sub(r"[*?\[].*|\..*", "", last))
    return name_for(name, "rows")
