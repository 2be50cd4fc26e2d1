"""Bad input: one clear error each, that says where and why; or, if asked, the record is left out and kept aside."""

import base64
import gzip
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowrun.connectors.filesystem import CONNECTOR
from flowrun.connectors.filesystem.table_path import location_of
from flowrun.core.options import parse_options
from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT, DATE, STRING, decimal
from flowrun.errors import ConnectorError, DataError, OptionError
from flowrun.testing.connector_conformance import SourceDrive, check_source, rows_in

from .tables import hidden_files, read, sink, source, visible_files

SCHEMA = Schema.of(id=BIGINT, name=STRING)
BROKEN = b'{"id":1}\n\n{"id":"x"}\n{"id":2}\nnot json\n{"id":3} {"id":4}\n[5]\nnull\n{"id":6\n{"id":7}\n'
"""Good lines are 1, 4 and 10."""


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "a.json"
    path.parent.mkdir()
    path.write_bytes(BROKEN)
    return path


def test_a_broken_line_fails_with_file_line_cause_and_text(broken: Path) -> None:
    with pytest.raises(DataError) as caught:
        read(source(broken, "json", SCHEMA))
    assert f"{broken}:3: column 'id': \"x\" is no BIGINT" in caught.value.message
    assert '{"id":"x"}' in caught.value.message
    assert caught.value.hint is not None
    assert "format.on-error" in caught.value.hint


def test_the_line_number_counts_from_the_start_of_the_file_in_later_splits(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"id":1}\n' * 500 + b"oops\n" + b'{"id":1}\n' * 500)
    with pytest.raises(DataError, match=r"a\.json:501: not JSON"):
        read(source(tmp_path, "json", SCHEMA, {"source.split-size": "1kb"}))
    (tmp_path / "b.json.gz").write_bytes(gzip.compress((tmp_path / "a.json").read_bytes()))
    with pytest.raises(DataError, match=r"b\.json\.gz:501: not JSON"):
        read(source(tmp_path / "b.json.gz", "json", SCHEMA))


def test_rows_before_the_broken_line_are_counted_but_it_stops_there(broken: Path) -> None:
    drive = SourceDrive(source(broken, "json", SCHEMA), batch_rows=1)
    with pytest.raises(DataError):
        drive.run()
    assert [r[0] for r in rows_in(drive.emitted)] in ([], [1])
    drive.close()


def test_skip_leaves_bad_records_out_and_counts_them(broken: Path) -> None:
    drive = SourceDrive(source(broken, "json", SCHEMA, {"format.on-error": "skip"}))
    assert [r[0] for r in drive.run()] == [1, 2, 7]
    assert drive.metrics.count("numRecordsSkipped") == 6
    drive.close()


def test_ignore_parse_errors_makes_fields_null_and_skips_broken_records(broken: Path) -> None:
    drive = SourceDrive(source(broken, "json", SCHEMA, {"json.ignore-parse-errors": "true"}))
    assert [r[0] for r in drive.run()] == [1, None, 2, 7]
    assert drive.metrics.count("numRecordsSkipped") == 5
    drive.close()


def test_dead_letters_keep_bytes_file_offset_and_reason(broken: Path, tmp_path: Path) -> None:
    letters = tmp_path / "letters"
    options = {"format.on-error": "dead-letter", "format.dead-letter.path": str(letters)}
    drive = SourceDrive(source(broken, "json", SCHEMA, options), batch_rows=1)
    drive.step()
    drive.step()
    assert visible_files(letters) == []
    assert [r[0] for r in drive.run()] == [1, 2, 7]
    drive.close()
    assert hidden_files(letters) == []
    kept = [json.loads(line) for f in visible_files(letters) for line in f.read_text().splitlines()]
    assert [base64.b64decode(k["raw"]) for k in kept] == [BROKEN.splitlines()[i] for i in (2, 4, 5, 6, 7, 8)]
    for letter in kept:
        raw = base64.b64decode(letter["raw"])
        assert BROKEN[letter["offset"] :].startswith(raw)
        assert letter["file"] == str(broken)
        assert letter["reason"]
        assert letter["text"] == raw.decode()


def test_dead_letters_become_visible_with_their_checkpoint_and_are_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"id":1}\nbad 1\n' * 20)
    letters = tmp_path / "letters"
    options = {"format.on-error": "dead-letter", "format.dead-letter.path": str(letters)}
    failing = source(tmp_path / "a.json", "json", SCHEMA, options)
    drive = SourceDrive(failing, batch_rows=3)
    drive.run(3)
    state, splits = drive.snapshot()
    assert visible_files(letters) == []
    drive.readers[0].notify_checkpoint_complete(1)
    before = sum(len(f.read_text().splitlines()) for f in visible_files(letters))
    assert 0 < before < 20
    resumed = SourceDrive(failing, enumerator_state=state, restored=splits)
    resumed.run()
    resumed.close()
    assert sum(len(f.read_text().splitlines()) for f in visible_files(letters)) == 20


def test_bad_records_do_not_disturb_positions(tmp_path: Path) -> None:
    rng = random.Random(1)
    lines, good = [], []
    for i in range(300):
        if rng.random() < 0.3:
            lines.append(rng.choice([b"oops", b'{"id":', b'{"id":"y"}', b"", b"null"]))
        else:
            lines.append(json.dumps({"id": i, "name": f"n{i}"}).encode())
            good.append((i, f"n{i}"))
    (tmp_path / "a.json").write_bytes(b"\n".join(lines))
    check_source(source(tmp_path, "json", SCHEMA, {"format.on-error": "skip", "source.split-size": "1kb"}), good)


def test_dead_letter_needs_a_path(broken: Path) -> None:
    with pytest.raises(OptionError, match=r"needs format\.dead-letter\.path"):
        source(broken, "json", SCHEMA, {"format.on-error": "dead-letter"})


def test_csv_errors_name_line_and_cause(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    cases: list[tuple[bytes, str]] = [
        (b"1,a\n2,b,c\n", r"a\.csv:2: expected 2 fields, got 3"),
        (b"1,a\nx,b\n", r"a\.csv:2: column 'id': 'x' is no BIGINT"),
        (b'1,a\n2,"b\n3,c\n', r"a\.csv:2: a quote is opened but not closed"),
        (b"1,a\n2,\xff\n", r"a\.csv:2: not UTF-8 text"),
    ]
    for content, message in cases:
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            read(source(path, "csv", SCHEMA))
    assert read(source(path, "csv", SCHEMA, {"format.on-error": "skip"})) == [(1, "a")]
    path.write_bytes(b"x,a\n1,2,3\n2,b\n")
    assert read(source(path, "csv", SCHEMA, {"csv.ignore-parse-errors": "true"})) == [(None, "a"), (2, "b")]


def test_a_header_without_known_columns_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("idd,namee\n1,x\n")
    with pytest.raises(DataError, match=r"a\.csv:1: the header names none of the columns id, name") as caught:
        read(source(tmp_path, "csv", SCHEMA, {"csv.header": "true"}))
    assert "idd" in str(caught.value)


def test_a_header_with_none_of_the_wanted_columns_gives_null_as_it_has_declared_ones(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n2\n")
    wanted = SCHEMA.select(["name"])
    assert read(source(tmp_path, "csv", wanted, {"csv.header": "true"}, declared=SCHEMA)) == [(None,), (None,)]


def test_null_in_a_not_null_column_is_a_bad_record(tmp_path: Path) -> None:
    schema = Schema((Field("id", BIGINT, nullable=False), Field("name", STRING)))
    (tmp_path / "a.json").write_text('{"id":1}\n{"name":"x"}\n')
    with pytest.raises(DataError, match=r"a\.json:2: column 'id' is NOT NULL"):
        read(source(tmp_path, "json", schema))
    assert read(source(tmp_path, "json", schema, {"format.on-error": "skip"})) == [(1, None)]
    pq.write_table(pa.table({"id": [1, None], "name": ["a", "b"]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="column 'id' is NOT NULL"):
        read(source(tmp_path / "a.parquet", "parquet", schema))


def test_missing_paths_are_found_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    with pytest.raises(OptionError, match="does not exist") as caught:
        source(tmp_path / "order", "json", SCHEMA)
    assert "orders" in str(caught.value)
    with pytest.raises(OptionError, match="does not exist"):
        source(tmp_path / "no" / "such", "json", SCHEMA)
    source(tmp_path / "later", "json", SCHEMA, {"source.monitor-interval": "1s"})  # may come later


def test_a_folder_without_files_is_empty_input_and_said_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "_hidden.json").write_text("{}")
    assert read(source(tmp_path, "json", SCHEMA)) == []
    assert "is a folder without files" in caplog.text


@pytest.mark.parametrize("path", ["*.json", "no/such/*.json"])
def test_a_glob_that_matches_nothing_is_found_before_anything_runs(tmp_path: Path, path: str) -> None:
    with pytest.raises(OptionError, match="matches no file"):
        source(f"{tmp_path}/{path}", "json", SCHEMA)
    source(f"{tmp_path}/{path}", "json", SCHEMA, {"source.monitor-interval": "1s"})  # may come later


def test_a_path_that_vanishes_before_the_start_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    gone = source(tmp_path / "a.json", "json", SCHEMA)
    listed = gone.create_enumerator(1, SourceDrive(gone).clock)
    listed.start()
    (tmp_path / "a.json").unlink()
    with pytest.raises(ConnectorError, match="does not exist"):
        read(gone)


def test_an_empty_path_does_not_mean_the_working_directory() -> None:
    with pytest.raises(OptionError, match="option 'path' is empty"):
        location_of(" ")
    _, errors = parse_options(CONNECTOR.sink_options, {"path": " "}, "connector 'filesystem'")
    assert [e.message for e in errors] == ["option 'path' is empty"]


def test_a_path_with_a_nul_character_is_refused_before_anything_is_opened() -> None:
    with pytest.raises(OptionError, match="option 'path' has a NUL character"):
        source("a\0b", "json", SCHEMA)


def test_a_broken_pattern_is_found_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"source\.path\.regex-pattern' is no regular expression: .*, got '\('"):
        source(tmp_path, "json", SCHEMA, {"source.path.regex-pattern": "("})


@pytest.mark.parametrize(
    ("path", "message", "hint"),
    [
        ("foo://bucket/a.json", "'foo://' is no kind of location", "file://, s3://, s3a://, gs://, gcs://, abfs://, abfss://, hdfs://, viewfs://"),
        ("S3://bucket/a.json", "'S3://' is no kind of location", "did you mean s3://?"),
        ("https://host/a.json", "'https://' is no kind of location", "s3://"),
        ("s3:///a.json", "names no bucket", "s3://BUCKET/…"),
        ("gs://", "names no bucket", "gs://BUCKET/…"),
    ],
)  # fmt: skip
def test_a_uri_that_no_store_has_is_told_before_anything_runs(path: str, message: str, hint: str) -> None:
    for make in (source, sink):
        with pytest.raises(OptionError, match=message) as raised:
            make(path, "json", SCHEMA)
        assert raised.value.option == "path"
        assert hint in (raised.value.hint or "")


def test_files_may_be_named_as_java_does(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": 1}\n')
    assert read(source(f"file:{tmp_path}/a.json", "json", SCHEMA)) == [(1, None)]
    assert location_of("s3a://bucket/x") == location_of("s3://bucket/x")


def test_a_truncated_archive_is_one_error(tmp_path: Path) -> None:
    packed = gzip.compress(b'{"id":1}\n' * 100_000)
    (tmp_path / "a.json.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(ConnectorError, match=r"a\.json\.gz cannot be decompressed after byte"):
        read(source(tmp_path, "json", SCHEMA))


def test_a_file_that_is_no_archive_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "a.json.gz").write_bytes(b'{"id":1}\n' * 100)
    with pytest.raises(ConnectorError, match="cannot be decompressed"):
        read(source(tmp_path, "json", SCHEMA))


def test_a_truncated_parquet_file_is_one_error(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": range(1000), "name": ["x"] * 1000}), path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    with pytest.raises(ConnectorError, match=r"a\.parquet is no Parquet file or is truncated"):
        read(source(path, "parquet", SCHEMA))
    with pytest.raises(ConnectorError, match="is no Parquet file or is truncated"):
        read(source(path, "parquet", SCHEMA, {"source.split-size": "10b"}))
    path.write_bytes(b"")
    with pytest.raises(ConnectorError, match="is no Parquet file or is truncated"):
        read(source(path, "parquet", SCHEMA))


@pytest.mark.parametrize(
    ("given", "schema", "message"),
    [
        (pa.array(["x"]), Schema.of(id=BIGINT), "column 'id': expected BIGINT, got string"),
        (pa.array([1]), Schema.of(id=STRING), "column 'id': expected STRING, got int64"),
        (pa.array([1.5]), Schema.of(id=decimal(4, 2)), r"expected DECIMAL\(4, 2\), got double"),
        (pa.array([[1]]), Schema.of(id=DATE), "expected DATE, got list"),
    ],
)
def test_parquet_types_that_do_not_fit_are_named(tmp_path: Path, given: Any, schema: Schema, message: str) -> None:
    pq.write_table(pa.table({"id": given}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=message) as caught:
        read(source(tmp_path, "parquet", schema))
    assert "a.parquet" in caught.value.message


def test_parquet_values_that_do_not_fit_are_named(tmp_path: Path) -> None:
    from flowrun.core.types import TINYINT

    pq.write_table(pa.table({"id": [1, 300]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: column 'id' holds a value that is no TINYINT"):
        read(source(tmp_path, "parquet", Schema.of(id=TINYINT)))


def test_partition_folders_that_are_missing_or_wrong_are_errors(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(ConnectorError, match="expected a folder 'id=…'"):
        read(source(tmp_path, "json", SCHEMA, partition_keys=("id",)))
    (tmp_path / "a.json").unlink()
    (tmp_path / "id=x").mkdir()
    (tmp_path / "id=x" / "a.json").write_text("{}")
    with pytest.raises(DataError, match="partition column 'id': 'x' is no BIGINT"):
        read(source(tmp_path, "json", SCHEMA, partition_keys=("id",)))
