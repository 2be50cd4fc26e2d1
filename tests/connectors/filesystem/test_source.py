"""Reading files: what is found, in which order, and that positions are exact."""

import bz2
import datetime as dt
import gzip
import json
import random
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowrun.api.connector import Comparison, PushedFilter
from flowrun.api.source import Boundedness
from flowrun.connectors.filesystem.table_path import TablePath, list_files
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, BYTES, DATE, STRING, array, decimal, map_of, row, timestamp, timestamp_ltz
from flowrun.errors import ConnectorError, OptionError
from flowrun.testing.connector_conformance import SourceDrive, check_source

from .tables import read, source

NUMBERED = Schema.of(id=BIGINT, name=STRING)


def write_lines(path: Path, rows: range, end: str = "\n") -> list[tuple[int, str]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    expected = [(i, f"name {i} ☂"[: 6 + i % 5]) for i in rows]
    text = end.join(json.dumps({"id": i, "name": n}, ensure_ascii=False) for i, n in expected)
    path.write_text(text + end, encoding="utf-8", newline="")
    return expected


def test_a_file_a_folder_and_a_glob(tmp_path: Path) -> None:
    a = write_lines(tmp_path / "in/a.json", range(3))
    b = write_lines(tmp_path / "in/sub/b.json", range(3, 5))
    write_lines(tmp_path / "in/_hidden.json", range(90, 91))
    write_lines(tmp_path / "in/.tmp/c.json", range(91, 92))
    assert read(source(tmp_path / "in/a.json", "json", NUMBERED)) == a
    assert read(source(tmp_path / "in", "json", NUMBERED)) == a + b
    assert read(source(f"{tmp_path}/in/*.json", "json", NUMBERED)) == a
    assert read(source(f"{tmp_path}/in/**/b*.json", "json", NUMBERED)) == b
    assert read(source(f"{tmp_path}/in/[!b].json", "json", NUMBERED)) == a
    assert read(source((tmp_path / "in/a.json").as_uri(), "json", NUMBERED)) == a
    assert read(source(tmp_path / "in", "json", NUMBERED, {"source.path.regex-pattern": r".*/b\.json"})) == b


@pytest.mark.parametrize("inside", ["a[", "a&&[", "~~[a", "[||a", "[a-a", "[-[a", "]a["])
def test_characters_of_a_glob_mean_themselves_within_brackets(inside: str, tmp_path: Path) -> None:
    """`re` reads some of them as operators on sets, or warns that it will."""
    rows = [write_lines(tmp_path / f"x{name}.json", range(n, n + 1))[0] for n, name in enumerate("[a")]
    write_lines(tmp_path / "xB.json", range(9, 10))
    assert read(source(tmp_path / f"x[{inside}].json", "json", NUMBERED)) == rows


def test_a_range_of_characters_that_is_none_matches_nothing(tmp_path: Path) -> None:
    write_lines(tmp_path / "xb.json", range(1))
    with pytest.raises(OptionError, match="matches no file"):
        source(tmp_path / "x[c-a].json", "json", NUMBERED)


def test_an_existing_name_with_brackets_is_no_glob(tmp_path: Path) -> None:
    rows = write_lines(tmp_path / "data[1].json", range(2))
    assert read(source(tmp_path / "data[1].json", "json", NUMBERED)) == rows


def test_files_come_in_order_of_their_paths(tmp_path: Path) -> None:
    for name in ("c", "a", "b"):
        write_lines(tmp_path / f"{name}.json", range(1))
    assert [Path(f.path).name for f in list_files(TablePath(str(tmp_path)), None)] == ["a.json", "b.json", "c.json"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("format", ["json", "csv"])
def test_split_files_are_read_whole_and_once_and_resume_exactly(tmp_path: Path, end: str, format: str) -> None:
    rows = write_lines(tmp_path / "a.json", range(200), end)
    if format == "csv":
        (tmp_path / "a.json").write_text("".join(f"{i},{n}{end}" for i, n in rows), newline="")
    options = {"source.split-size": "700b", **({"csv.multi-line": "false"} if format == "csv" else {})}
    split = source(tmp_path, format, NUMBERED, options)
    check_source(split, rows)


def test_compressed_files_resume_exactly(tmp_path: Path) -> None:
    rows = write_lines(tmp_path / "plain", range(100))
    text = (tmp_path / "plain").read_bytes()
    (tmp_path / "plain").unlink()
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(text[:1000]) + gzip.compress(text[1000:]))
    check_source(source(tmp_path, "json", NUMBERED, {"source.split-size": "100b"}), rows)
    (tmp_path / "b.json.bz2").write_bytes(bz2.compress(text))
    with pa.output_stream(str(tmp_path / "c.json.zst"), compression="zstd") as out:
        out.write(text)
    assert sorted(read(source(tmp_path, "json", NUMBERED))) == sorted(rows * 3)


def test_parquet_resumes_exactly_within_and_between_row_groups(tmp_path: Path) -> None:
    rows = [(i, f"n{i}") for i in range(300)]
    table = pa.table({"name": [n for _, n in rows], "id": [i for i, _ in rows], "more": [0.5] * 300})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=37)
    check_source(source(tmp_path, "parquet", NUMBERED, {"source.split-size": "900b"}), rows)
    check_source(source(tmp_path, "parquet", NUMBERED), rows)


def test_raw_lines_are_one_column(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_bytes(b"to be or\n\nnot\r\nto be")
    lines = source(tmp_path / "words.txt", "raw", Schema.of(line=STRING))
    check_source(lines, [("to be or",), ("not",), ("to be",)])
    assert read(source(tmp_path / "words.txt", "raw", Schema.of(line=BYTES)))[0] == (b"to be or",)


def test_columns_of_every_type_from_json(tmp_path: Path) -> None:
    schema = Schema.of(
        amount=decimal(10, 2),
        ts=timestamp(3),
        at=timestamp_ltz(3),
        day=DATE,
        data=BYTES,
        tags=array(STRING),
        attrs=map_of(STRING, STRING),
        device=row(("os", STRING), ("version", BIGINT)),
        absent=STRING,
    )
    (tmp_path / "a.json").write_text(
        '{"amount": 10.13, "ts": "2024-03-01 10:00:00.123", "at": "2024-03-01T10:00:00+02:00", "day": "2024-03-01", "extra": [1],'
        ' "data": "YWJj", "tags": ["a", null], "attrs": {"k": "v"}, "device": {"os": "ios", "more": 1}}\n'
    )
    assert read(source(tmp_path / "a.json", "json", schema)) == [
        (
            Decimal("10.13"),
            dt.datetime(2024, 3, 1, 10, 0, 0, 123000),
            dt.datetime(2024, 3, 1, 8, tzinfo=dt.UTC),
            dt.date(2024, 3, 1),
            b"abc",
            ["a", None],
            [("k", "v")],
            {"os": "ios", "version": None},
            None,
        )
    ]


def test_partition_columns_come_from_folders(tmp_path: Path) -> None:
    write_lines(tmp_path / "day=2024-03-01/country=DE/a.json", range(1))
    write_lines(tmp_path / "day=2024-03-02/country=__HIVE_DEFAULT_PARTITION__/a.json", range(1))
    write_lines(tmp_path / "day=2024-03-03/country=a%2Fb/a.json", range(1))
    schema = Schema.of(country=STRING, id=BIGINT, day=DATE)
    assert read(source(tmp_path, "json", schema, partition_keys=("day", "country"))) == [
        ("DE", 0, dt.date(2024, 3, 1)),
        (None, 0, dt.date(2024, 3, 2)),
        ("a/b", 0, dt.date(2024, 3, 3)),
    ]


@pytest.mark.parametrize(
    ("pushed", "days"),
    [
        (PushedFilter("day", Comparison.GE, 19784), [2, 3]),  # 2024-03-02
        (PushedFilter("day", Comparison.EQ, 19783), [1]),
        (PushedFilter("country", Comparison.EQ, "DE"), [1]),
        (PushedFilter("country", Comparison.NE, "DE"), [3]),  # NULL is not other than DE: it is unknown
        (PushedFilter("country", Comparison.IS_NULL), [2]),
        (PushedFilter("id", Comparison.EQ, 7), [1, 2, 3]),  # not a partition column: JSON has no statistics
    ],
)
def test_folders_that_a_filter_excludes_are_not_read(tmp_path: Path, pushed: PushedFilter, days: list[int]) -> None:
    write_lines(tmp_path / "day=2024-03-01/country=DE/a.json", range(1))
    write_lines(tmp_path / "day=2024-03-02/country=__HIVE_DEFAULT_PARTITION__/a.json", range(1))
    write_lines(tmp_path / "day=2024-03-03/country=FR/a.json", range(1))
    schema = Schema.of(country=STRING, id=BIGINT, day=DATE)
    rows = read(source(tmp_path, "json", schema, partition_keys=("day", "country"), filters=(pushed,)))
    assert [row[2].day for row in rows] == days


def test_pruned_csv_columns_keep_their_positions(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,x,2.5\n2,y,3.5\n")
    declared = Schema.of(id=BIGINT, name=STRING, price=decimal(4, 1))
    pruned = declared.select(["price", "id"])
    assert read(source(tmp_path, "csv", pruned, declared=declared)) == [(Decimal("2.5"), 1), (Decimal("3.5"), 2)]


def test_a_csv_header_names_columns_in_any_order(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("﻿name,other,id\n" + "".join(f"n{i},x,{i}\n" for i in range(50)), encoding="utf-8")
    (tmp_path / "b.csv").write_text("id,name\n" + "".join(f"{i},n{i}\n" for i in range(50, 60)))
    (tmp_path / "c.csv").write_text("")
    (tmp_path / "d.csv").write_text("id\n60\n")
    options = {"csv.header": "true", "csv.multi-line": "false", "source.split-size": "60b"}
    rows: list[tuple[int, str | None]] = [(i, f"n{i}") for i in range(60)]
    check_source(source(tmp_path, "csv", NUMBERED, options), [*rows, (60, None)])


def test_a_byte_order_mark_and_a_missing_last_line_end(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"id":1}\r\n\r\n  \n\t{"id":2} ')
    check_source(source(tmp_path / "a.json", "json", NUMBERED), [(1, None), (2, None)])


def test_lines_longer_than_a_block(tmp_path: Path) -> None:
    long = "x" * 5_000_000
    (tmp_path / "a.json").write_text(json.dumps({"id": 1, "name": long}) + "\n" + '{"id":2}\n' * 3)
    rows = read(source(tmp_path / "a.json", "json", NUMBERED))
    assert [r[0] for r in rows] == [1, 2, 2, 2]
    assert rows[0][1] == long


def test_watching_finds_new_files_and_reads_each_once(tmp_path: Path) -> None:
    watched = source(tmp_path / "in", "json", NUMBERED, {"source.monitor-interval": "1s"})
    assert watched.boundedness is Boundedness.UNBOUNDED
    drive = SourceDrive(watched, parallelism=2)
    assert drive.enumerator.discovery_interval_ms == 1000
    assert drive.run(5) == []
    first = write_lines(tmp_path / "in/a.json", range(3))
    drive.enumerator.discover()
    assert drive.run(10) == first
    state, splits = drive.snapshot()
    drive.close()
    assert splits == []
    resumed = SourceDrive(watched, enumerator_state=state)
    second = write_lines(tmp_path / "in/b.json", range(3, 5))
    resumed.enumerator.discover()
    assert resumed.run(10) == second
    assert not resumed.enumerator.exhausted
    resumed.close()


def test_a_file_that_shrank_since_the_snapshot_is_an_error(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.json", range(50))
    shrinking = source(tmp_path / "a.json", "json", NUMBERED)
    drive = SourceDrive(shrinking, batch_rows=10)
    drive.run(3)
    state, splits = drive.snapshot()
    drive.close()
    (tmp_path / "a.json").write_text("{}\n")
    resumed = SourceDrive(shrinking, enumerator_state=state, restored=splits)
    with pytest.raises(ConnectorError, match="is shorter than the position"):
        resumed.run()
    resumed.close()


def test_small_files_are_never_split_and_big_ones_are_about_equal(tmp_path: Path) -> None:
    (tmp_path / "small.json").write_bytes(b"{}\n" * 10)
    (tmp_path / "z.json").write_bytes(b"{}\n" * 1000)
    drive = SourceDrive(source(tmp_path, "json", NUMBERED, {"source.split-size": "1kb"}))
    offsets = []
    while (split := drive.enumerator.next_split(0)) is not None:
        offsets.append((Path(str(split.position["path"])).name, split.position["offset"]))
    assert offsets == [("small.json", 0), ("z.json", 0), ("z.json", 1000), ("z.json", 2000)]
    drive.close()


@pytest.mark.parametrize("seed", range(5))
def test_any_split_size_gives_the_same_rows(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    rows = [(i, "v" * rng.randrange(40)) for i in range(rng.randrange(1, 60))]
    text = "".join(json.dumps({"id": i, "name": n}) + rng.choice(["\n", "\r\n", "\n\n"]) for i, n in rows)
    (tmp_path / "a.json").write_text(text, newline="")
    for size in (1, 2, rng.randrange(3, 50), 100, 1000):
        assert (
            sorted(read(source(tmp_path, "json", NUMBERED, {"source.split-size": f"{size}b"}), parallelism=2)) == rows
        )


def test_unknown_partition_columns_and_formats_are_option_errors(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.json", range(1))
    with pytest.raises(OptionError, match="partition column 'x' is no column"):
        source(tmp_path, "json", NUMBERED, partition_keys=("x",))
    with pytest.raises(OptionError, match="exactly one column"):
        source(tmp_path, "raw", NUMBERED)
    with pytest.raises(OptionError, match="no CSV form"):
        source(tmp_path, "csv", Schema.of(m=map_of(STRING, STRING)))
