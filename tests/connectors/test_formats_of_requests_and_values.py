"""Every format in the connectors that send rows one by one: requests of `http` and values of `redis`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flowrun.api.format import RecordFormat, messages_chunk
from flowrun.connectors.formats.registry import BUILT_IN, RECORD_FORMATS, format_named
from flowrun.connectors.http.encoding import RowEncoder
from flowrun.connectors.redis.connector import FORMATS as VALUE_FORMATS
from flowrun.connectors.redis.encoding import CommandEncoder
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT
from flowrun.errors import OptionError
from tests.connectors.formats.formats import decoder
from tests.connectors.http import tables as requests
from tests.connectors.redis import tables as values
from tests.connectors.test_every_format import SCHEMA, batch, options, registry, rows_of, schema_of
from tests.end_to_end.conftest import flowrun
from tests.servers.http import HttpServer

__all__ = ["flowrun", "options", "registry"]

IN_LINES = {n for n in RECORD_FORMATS if isinstance(f := format_named(n), RecordFormat) and f.create_framer is not None}
IN_ARRAYS = {n for n in RECORD_FORMATS if n == "json" or n.endswith("-json")}
ACCEPTED = {"single": set(RECORD_FORMATS), "lines": IN_LINES, "json-array": IN_ARRAYS}
URL = "http://127.0.0.1:1/rows"


def decoded(format: str, records: Sequence[bytes], given: dict[str, str], schema: Schema | None = None) -> list[Any]:
    found = decoder(format, schema or schema_of(format), **given).decode(messages_chunk(pa.array(records, pa.binary())))
    assert not found.bad
    return [tuple(r.values()) for r in found.columns.to_pylist()]


@pytest.mark.parametrize("format", RECORD_FORMATS)
@pytest.mark.parametrize("mode", ACCEPTED)
def test_requests_of_every_format(
    http_server: HttpServer, format: str, mode: str, options: dict[str, dict[str, str]]
) -> None:
    own = options.get(format, {})
    given = {"url": f"{http_server.url}/rows", "format": format, "sink.request.mode": mode, **own}
    if format not in ACCEPTED[mode]:
        with pytest.raises(OptionError) as refused:
            requests.sink(schema_of(format), given)
        assert f"'{format}'" in refused.value.message
        assert refused.value.hint is not None
        return
    made = requests.sink(schema_of(format), {**given, "sink.requests.max-inflight": "1"})
    requests.write(made, RecordBatch(batch(format)))
    bodies = [r.body for r in http_server.taken]
    match mode:
        case "single":
            records = bodies
        case "lines":
            (body,) = bodies
            assert body.endswith(b"\n")
            records = body[:-1].split(b"\n")
        case _:
            (body,) = bodies
            records = [json.dumps(each).encode() for each in json.loads(body)]
    assert decoded(format, records, own) == rows_of(format)


@pytest.mark.parametrize("format", [n for n in RECORD_FORMATS if getattr(format_named(n), "changelog", False)])
def test_requests_tell_changes_in_formats_that_carry_them(format: str, options: dict[str, dict[str, str]]) -> None:
    own = options.get(format, {})
    made = requests.sink(SCHEMA, {"url": URL, "format": format, **own}, "id", updating=True)
    kinds = pa.array([RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE], pa.int8())
    payloads = RowEncoder(made.layout).encode(RecordBatch(batch(format), row_kinds=kinds)).column("payload")
    found = decoder(format, SCHEMA, **own).decode(messages_chunk(payloads))
    assert not found.bad
    assert found.kinds is not None
    assert [k & 1 for k in found.kinds.to_pylist()] == [0, 1, 0, 1]
    assert [tuple(r.values()) for r in found.columns.to_pylist()] == rows_of(format)


def words_of(command: bytes) -> list[bytes]:
    """The words of a command as Redis is sent it."""
    words, rest = [], command.partition(b"\r\n")[2]
    while rest:
        head, _, rest = rest.partition(b"\r\n")
        size = int(head[1:])
        words.append(rest[:size])
        rest = rest[size + 2 :]
    return words


@pytest.mark.parametrize("format", VALUE_FORMATS)
@pytest.mark.parametrize("kind", ["string", "list", "set"])
def test_values_of_every_format(format: str, kind: str, options: dict[str, dict[str, str]]) -> None:
    own = options.get(format, {})
    columns = batch(format)
    schema = Schema((Field("k", BIGINT), *schema_of(format)))
    keyed = pa.RecordBatch.from_arrays(
        [pa.array(range(columns.num_rows), pa.int64()), *columns.columns], schema=schema.arrow
    )
    if kind == "string":
        made = values.sink(schema, {"type": kind, "format": format, **own}, "k")
        rows = RecordBatch(keyed)
    else:
        made = values.sink(schema_of(format), {"type": kind, "key": "all", "format": format, **own})
        rows = RecordBatch(columns)
    commands = CommandEncoder(made.layout, made.schema, None).encode(rows).column(0).to_pylist()
    assert decoded(format, [words_of(c)[2] for c in commands], own) == rows_of(format)


@pytest.mark.parametrize(
    ("connector", "where", "accepted"),
    [
        ("http", f"'url' = '{URL}'", RECORD_FORMATS),
        ("redis", "'url' = 'redis://localhost:6379/0', 'key.prefix' = 'b:'", VALUE_FORMATS),
    ],
)
def test_every_other_format_is_refused_before_anything_runs(
    flowrun: Callable[..., Any], tmp_path: Path, connector: str, where: str, accepted: tuple[str, ...]
) -> None:
    refused = sorted({*BUILT_IN, "nonsense"} - set(accepted))
    script = "CREATE TABLE a (id BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '1');\n"
    for number, format in enumerate(refused):
        options = f"'connector' = '{connector}', {where}, 'format' = '{format}'"
        script += f"CREATE TABLE b{number} (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ({options});\n"
        script += f"INSERT INTO b{number} SELECT id FROM a;\n"
    (tmp_path / "script.sql").write_text(script)
    outcome = flowrun("validate", tmp_path / "script.sql")
    assert outcome.code == 2
    for number, format in enumerate(refused):
        place = rf"script\.sql:{2 + 2 * number}:\d+: error: table 'b{number}': "
        what = rf"connector '{connector}' (cannot use|has no) format '{format}'"
        assert re.search(place + what, outcome.err), outcome.err
    assert ", ".join(accepted) in outcome.err
