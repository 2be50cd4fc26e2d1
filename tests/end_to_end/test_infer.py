"""`flowrun infer`: what it writes reads all of the data, in every format, and says what was seen."""

from __future__ import annotations

import csv
import gzip
import json
import math
import random
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from tests.end_to_end.conftest import Command


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_lines(path: str, rows: list[dict[str, Any]]) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("".join(json.dumps(r) + "\n" for r in rows))


def inferred(flowrun: Command, path: str, *words: object, to: str = "made.yaml") -> list[dict[str, Any]]:
    """The rows that the pipeline which is written gives."""
    Path(to).unlink(missing_ok=True)
    done = flowrun("infer", path, "-o", to, *words)
    assert done.code == 0, done.err
    shown = flowrun("preview", to, "--format", "json", "--sample", 1_000_000)
    assert shown.code == 0, Path(to).read_text() + shown.err
    return [json.loads(line, parse_float=Decimal) for line in shown.out.split("\n") if line]


@pytest.mark.parametrize("to", ["made.yaml", "made.sql"])
def test_json_with_everything(flowrun: Command, to: str) -> None:
    rows = [
        {
            "order id": i, "user": {"name": f"u{i}", "a-b": None if i % 2 else 1.5}, "tags": ["x"] * (i % 3), "amount": i + 0.25,
            "on": i % 2 == 0, "ts": 1_700_000_000_000 + i * 1000, "day": "2024-02-29", "it's": "`",
        }
        for i in range(30)
    ]  # fmt: skip
    write_lines("data/2024/a.json", rows)
    found = inferred(flowrun, "data", to=to)
    text = Path(to).read_text()
    assert [f["order id"] for f in found] == list(range(30))
    assert found[3]["user"] == {"name": "u3", "a-b": None}
    assert found[3]["amount"] == Decimal("3.25")
    assert found[3]["event_time"].startswith("2023-11-14 22:13:23")
    assert "differs in each row" in text
    assert "30 rows of the sample are in order" in text
    assert "TO_TIMESTAMP_LTZ(`ts`, 3)" in text


def test_what_was_seen_is_said(flowrun: Command) -> None:
    write_lines("clicks.json", [{"n": 1, "x": "a"}, {"n": "b"}])
    text = flowrun("infer", "clicks.json").out
    assert "name: clicks\n" in text
    assert "n: STRING  # the sample has values of several kinds: text, whole" in text
    assert "x: STRING  # NULL or missing in 50% of the rows" in text
    assert "No column looks like an event time" in text


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("header", [True, False])
def test_csv(flowrun: Command, delimiter: str, header: bool) -> None:
    lines = [["1", "007", "19.90", "2024-01-01 10:00:05"], ["2", "", "5", "2024-01-01 10:00:01"]]
    if header:
        lines.insert(0, ["id", "zip code", "price", "at"])
    with gzip.open("rows.csv.gz", "wt") as file:
        file.write("".join(delimiter.join(line) + "\n" for line in lines))
    first, second = inferred(flowrun, "rows.csv.gz")
    assert list(first.values()) == [1, "007", Decimal("19.90"), "2024-01-01 10:00:05"]
    assert list(second.values())[1] in (None, "")
    assert ("zip code" in first) is header
    assert "delay: 5s" in Path("made.yaml").read_text()


@pytest.mark.parametrize("form", ["parquet", "orc", "arrow"])
def test_formats_that_have_a_schema_keep_it(flowrun: Command, form: str) -> None:
    table = pa.table(
        {
            "id": pa.array([1, 2], pa.int32()),
            "at": pa.array([0, 1500], pa.timestamp("ms")),
            "in": pa.array([{"a b": [1]}, None], pa.struct([("a b", pa.list_(pa.int64()))])),
        }
    )
    path = f"rows.{form}"
    if form == "parquet":
        pq.write_table(table, path)
    elif form == "orc":
        orc.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    found = inferred(flowrun, path)
    assert [(f["id"], f["in"]) for f in found] == [(1, {"a b": [1]}), (2, None)]
    text = Path("made.yaml").read_text()
    assert "id: INT" in text
    assert "watermark: {column: at" in text


ODD = (
    "a\nb", "a\tb", 'a"b', "a'b", "a`b", "a\\b", " edges ", "Id", "ID", "STRASSE", "straße", "x" * 3000, "größe", "名前", "😀",
    "e\u0301", "\u00e9", "a\x00b", "a\x1bb", "a\x7fb", "a\x85b", "a\u2028b", "a\ufeffb", "\u202eabc", "\u200b", "${HOME}",
    "$${HOME}", "a: b", "a #c", "- d", "{e}", "[f]", "g, h", "&i", "*j", "!k", "%l", "@m", "?", "|", "a.b", "select", "null",
    "true", "yes", "~", "a;b", "a--b", "/*", "*/", "<<", "{}",
)  # fmt: skip
"""Names of columns; a carriage return is none that SQL can write."""


def write_odd(form: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """A file `odd` with such columns, and its rows."""
    rows: list[dict[str, Any]] = [{"id": 10 * i, **{n: 10 * i + k for k, n in enumerate(names)}} for i in range(3)]
    match form:
        case "json":
            write_lines("odd.json", rows)
        case "csv":
            with Path("odd.csv").open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerows([list(rows[0]), *(list(row.values()) for row in rows)])
        case "parquet":
            pq.write_table(pa.Table.from_pylist(rows), "odd.parquet")
    return rows


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
@pytest.mark.parametrize("to", ["made.yaml", "made.sql"])
def test_columns_have_odd_names(flowrun: Command, form: str, to: str) -> None:
    rows = write_odd(form, ODD)
    if form == "csv":  # whose reader takes names without the spaces around them
        rows = [{n.strip(" "): v for n, v in row.items()} for row in rows]
    assert inferred(flowrun, f"odd.{form}", to=to) == rows


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_a_carriage_return_in_a_name_is_nothing_for_sql(flowrun: Command, form: str) -> None:
    rows = write_odd(form, ("a\r\nb", "c\rd"))
    assert inferred(flowrun, f"odd.{form}") == rows
    refused = flowrun("infer", f"odd.{form}", "--as", "sql")
    assert refused.code == 2
    said = 'column "a\\r\\nb" has a carriage return in its name, which SQL cannot write\n  hint: --as yaml can'
    assert said in refused.err


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
@pytest.mark.parametrize("name", ["", " "])
@pytest.mark.parametrize("to", ["made.yaml", "made.sql"])
def test_a_column_without_a_name_is_left_out(flowrun: Command, form: str, name: str, to: str) -> None:
    rows = write_odd(form, (name, "a"))
    assert inferred(flowrun, f"odd.{form}", to=to) == [{"id": r["id"], "a": r["a"]} for r in rows]
    assert "A column without a name is left out" in Path(to).read_text()


@pytest.mark.parametrize("to", ["made.yaml", "made.sql"])
def test_fields_have_odd_names(flowrun: Command, to: str) -> None:
    rows = [{"o": dict.fromkeys(ODD, i)} for i in range(3)]
    write_lines("odd.json", [{"o": {**r["o"], "": 1}} for r in rows])
    assert inferred(flowrun, "odd.json", to=to) == rows
    assert "a field without a name is left out" in Path(to).read_text()
    pq.write_table(pa.Table.from_pylist([{"o": {**r["o"], "": 1}} for r in rows]), "odd.parquet")
    assert inferred(flowrun, "odd.parquet", to=to) == rows


@pytest.mark.parametrize("to", ["made.yaml", "made.sql"])
def test_the_event_time_has_an_odd_name(flowrun: Command, to: str) -> None:
    write_lines("odd.json", [{"${HOME}`\ntime": 1_700_000_000_000 + i, "mixed": {"${z}": i or "a"}} for i in range(3)])
    found = inferred(flowrun, "odd.json", to=to)
    assert [f["${HOME}`\ntime"] for f in found] == [1_700_000_000_000 + i for i in range(3)]
    assert found[0]["event_time"].startswith("2023-11-14 22:13:20")
    assert found[1]["mixed"] == {"${z}": "1"}


def test_a_name_twice_in_the_first_line(flowrun: Command) -> None:
    Path("odd.csv").write_text("a,id,a,,\n1,2,3,4,5\n")
    assert inferred(flowrun, "odd.csv") == [{"id": 2}]
    text = Path("made.yaml").read_text()
    assert "# Column 'a' stands twice in the first line and is left out: rename one of them." in text
    assert "# A column without a name is left out" in text


def test_tables_have_names_that_both_languages_take(flowrun: Command) -> None:
    write_lines("Café größe.json", [{"n": 1}])
    assert "name: cafe_groe\n" in flowrun("infer", "Café größe.json").out
    refused = flowrun("infer", "Café größe.json", "--name", "my rows")
    assert (refused.code, "a source cannot be called 'my rows'" in refused.err) == (2, True)
    assert "CREATE TABLE `my rows`" in flowrun("infer", "Café größe.json", "--name", "my rows", "--as", "sql").out


def test_folders_are_columns(flowrun: Command) -> None:
    write_lines("hits/day=2024-01-01/region=7/a.json", [{"n": 1}])
    write_lines("hits/day=2024-01-02/region=8/a.json", [{"n": 2}])
    found = sorted(inferred(flowrun, "hits"), key=lambda f: f["n"])
    assert found == [{"n": 1, "day": "2024-01-01", "region": 7}, {"n": 2, "day": "2024-01-02", "region": 8}]


@pytest.mark.parametrize("seed", range(4))
def test_a_project_of_data_runs_and_passes_its_test(
    flowrun: Command, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    rows = [
        {"id": i, "a b": random_value(chance, 2), "at": f"2024-01-01 10:00:{i:02d}", "é": random_value(chance, 1)}
        for i in range(20)
    ]
    write_lines("data/rows.json", rows)
    made = flowrun("init", "project", "--from", "data/rows.json")
    assert made.code == 0, made.err
    monkeypatch.chdir("project")
    workflow = Path(".github/workflows/pipelines.yml").read_text()
    commands = re.findall(r"- run: flowrun (.+)", workflow)
    assert [words.split()[0] for words in commands] == ["validate", "lint", "test"]
    for words in commands:
        done = flowrun(*words.split())
        assert done.code == 0, done.out + done.err
    ran = flowrun("run", "pipeline.yaml", "--quiet")
    assert ran.code == 0, ran.err
    assert len(ran.out.splitlines()) >= 20
    assert flowrun("init", ".", "--from", "../data/rows.json").code == 2


def test_an_existing_file_is_not_overwritten(flowrun: Command) -> None:
    write_lines("a.json", [{"n": 1}])
    Path("made.yaml").write_text("mine")
    done = flowrun("infer", "a.json", "-o", "made.yaml")
    assert done.code == 2
    assert Path("made.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", '{"n": 1}\n[1]\n', "a.json, line 2 is no JSON object"),
        ("a.json", '{"n": 1}\n3\n', "a.json, line 2 is no JSON object\n  hint: each line is one JSON object"),
        ("a.json", '[{"n": 1},\n{"n": 2}]\n', "a.json, line 1 is no JSON: "),
        (
            "a.json",
            '[{"n": 1}, {"n": 2}]\n',
            "line 1 is no JSON object, but an array\n  hint: each line is one JSON object: `jq -c '.[]' a.json`",
        ),
        (
            "a.json",
            '{"n": 1e400}\n',
            "line 1 is no JSON: number is infinity when parsed as double\n  hint: correct the line",
        ),
        ("my a.json", '[{"n": 1}]\n', "`jq -c '.[]' 'my a.json'`"),
        ("a.json", '{\n  "n": 1\n}\n', "`jq -c . a.json` of objects over several lines"),
        (
            "a.json",
            '{"n": 1}\n{"n": 2\n',
            "a.json, line 2 is no JSON: unexpected end of data\n  hint: correct the line, or leave such lines out",
        ),
        ("a.json", "{}\n{}\n", "the rows of 'a.json' that were looked at have no columns"),
        ("a.json", "", "there is no file with data in 'a.json'"),
        (
            "a.txt",
            "x",
            "neither the names of the files nor their first bytes tell their format\n  hint: give it: --format json|csv",
        ),
        ("a.parquet", "x", "a.parquet is no file of format 'parquet'"),
        ("a.csv", 'a,b\n1,"x\n', "a.csv is no CSV"),
    ],
)
def test_what_cannot_be_read(flowrun: Command, name: str, text: str, said: str) -> None:
    Path(name).write_text(text)
    done = flowrun("infer", name)
    assert done.code == 2
    assert said in done.err
    assert done.out == ""


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_a_folder_with_something_beside_the_data(flowrun: Command, name: str) -> None:
    Path("days").mkdir()
    Path("days/README.txt").write_text("What is here.")
    line = b'{"n": 1}\n'
    Path("days", name).write_bytes(gzip.compress(line) if name.endswith("gz") else line)
    done = flowrun("infer", "days")
    assert done.code == 2
    assert "days/README.txt is no file of format 'json', as others in 'days' are" in done.err
    named = f"days/*{name.removeprefix('a')}"
    assert f"hint: name the files with data: flowrun infer '{named}'" in done.err
    done = flowrun("infer", named)
    assert done.code == 0, done.err
    assert "n: BIGINT" in done.out


def test_bytes_that_are_no_text(flowrun: Command) -> None:
    Path("a.json").write_bytes(b'{"a": "\xff"}\n')
    done = flowrun("infer", "a.json")
    assert done.code == 2
    assert "byte 7 is no UTF-8 text" in done.err


@pytest.mark.parametrize("to", ["made.yaml", "made.sql"])
def test_whole_numbers_of_any_length_keep_their_digits(flowrun: Command, to: str) -> None:
    rows = [{"n": 123456789012345678901234567890, "far": 10**40, "price": 1.5}, {"n": -1, "far": 7, "price": 2.25}]
    write_lines("a.json", rows)
    assert inferred(flowrun, "a.json", to=to) == [
        {"n": 123456789012345678901234567890, "far": str(10**40), "price": Decimal("1.5")},
        {"n": -1, "far": "7", "price": Decimal("2.25")},
    ]


@pytest.mark.parametrize("form", ["csv", "json"])
def test_times_without_seconds(flowrun: Command, form: str) -> None:
    texts = [("2024-01-01 10:00", "2024-01-01T10:00"), ("2024-01-01 10:05", "2024-01-01T10:05")]
    if form == "csv":
        Path("a.csv").write_text("a,b\n" + "".join(f"{a},{b}\n" for a, b in texts))
    else:
        write_lines("a.json", [{"a": a, "b": b} for a, b in texts])
    found = inferred(flowrun, f"a.{form}")
    assert [(row["a"], row["b"]) for row in found] == [
        ("2024-01-01 10:00:00", "2024-01-01 10:00:00"),
        ("2024-01-01 10:05:00", "2024-01-01 10:05:00"),
    ]
    assert Path("made.yaml").read_text().count("TIMESTAMP(3)") == 2


def test_utf_16_is_told(flowrun: Command) -> None:
    Path("a.json").write_bytes('{"a": 1}\n'.encode("utf-16"))
    done = flowrun("infer", "a.json")
    assert (done.code, "iconv -f UTF-16 -t UTF-8" in done.err) == (2, True)


def test_lines_that_are_no_rows_may_be_left_out(flowrun: Command) -> None:
    Path("a.json").write_text('{"n": 1}\n{"n": \n[2]\n{"n": 3}\n')
    assert inferred(flowrun, "a.json", "--with", "format.on-error=skip") == [{"n": 1}, {"n": 3}]
    text = Path("made.yaml").read_text()
    assert "2 of its lines could not be read; `format.on-error` says that this is no error." in text
    assert "format.on-error: skip\n" in text


def test_nothing_there(flowrun: Command) -> None:
    done = flowrun("infer", "none/*.json")
    assert done.code in (1, 2)
    assert "none" in done.err


def random_value(chance: random.Random, depth: int) -> Any:
    kinds = ["whole", "number", "text", "truth", "time", "null"] + ["list", "object"] * (depth > 0)
    match chance.choice(kinds):
        case "whole":
            return chance.choice([0, -1, 2**40, chance.randrange(100)])
        case "number":
            return chance.choice([0.5, -1e-7, 3.25, 1e15])
        case "text":
            return chance.choice(["", "a", "ü\n", "12", "2024-01-01", "`'\"", "NULL"])
        case "truth":
            return chance.random() < 0.5
        case "time":
            return f"2024-01-01T{chance.randrange(24):02d}:00:00{chance.choice(['', '.5', '.123456'])}"
        case "list":
            return [random_value(chance, depth - 1) for _ in range(chance.randrange(3))]
        case "object":
            return {f"k{chance.randrange(3)}": random_value(chance, depth - 1) for _ in range(chance.randrange(3))}
    return None


@pytest.mark.parametrize("seed", range(8))
def test_random_documents_are_all_read(flowrun: Command, seed: int) -> None:
    """Every value that is not NULL is there, and numbers and truth values are the same."""
    chance = random.Random(seed)
    names = [
        chance.choice(["a", "price", "user id", "`b`", "é", "on", "c.d"]) + str(i)
        for i in range(chance.randrange(1, 6))
    ]
    rows = [
        {n: random_value(chance, 2) for n in names if chance.random() < 0.8} for _ in range(chance.randrange(1, 40))
    ]
    write_lines("rows.json", rows)
    found = inferred(flowrun, "rows.json", to=chance.choice(["made.yaml", "made.sql"]))
    assert len(found) == len(rows)
    for given, read in zip(rows, found, strict=True):
        for name, value in given.items():
            assert (read[name] is None) == (value is None), (name, value, read[name])
            if isinstance(value, bool) and not isinstance(read[name], str):
                assert read[name] is value
            elif isinstance(value, int | float) and isinstance(read[name], int | Decimal):
                assert math.isclose(float(read[name]), value), name


def test_a_place_where_nothing_is_is_wrong_input(flowrun: Command) -> None:
    Path("gone.json").symlink_to("nowhere.json")
    for place, said in (
        ("absent.json", "does not exist"),
        ("no-*.json", "matches no file"),
        ("gone.json", "a link to nowhere"),
    ):
        done = flowrun("infer", place)
        assert done.code == 2
        assert said in done.err
