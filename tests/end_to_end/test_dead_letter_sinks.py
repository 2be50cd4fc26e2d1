"""Dead letters go to any sink of the pipeline, each with its bytes and where it comes from, and not more of them than are allowed."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from flowrun.core.row_errors import DEAD_LETTER_SCHEMA
from flowrun.errors import JobFailedError, PipelineError
from flowrun.plan.row_errors import fingerprint_of
from tests.end_to_end.conftest import Command
from tests.end_to_end.processes import started
from tests.end_to_end.running import json_rows, run_file, run_text, written_files

POISON = b'no json \xff\x00\x1b[2J "'
"""Neither UTF-8 nor harmless in a terminal."""
PIPELINE = """
name: shop
settings: {{on_error: dead-letter, dead_letters: {letters}}}
sources:
  rows: {{connector: filesystem, path: {folder}/in, format: json, schema: {{n: INT, d: INT}}{source}}}
steps:
  divided: {{from: rows, select: [n, 100 / d AS q]}}
sinks:
  out: {{from: divided, connector: filesystem, path: {folder}/out, format: json}}
  letters: {{connector: filesystem, path: {folder}/dead, format: {format}}}
"""


def pipeline(folder: Path, letters: str = "{sink: letters}", source: str = "", format: str = "json") -> str:
    return PIPELINE.format(folder=folder, letters=letters, source=source, format=format)


def lines(count: int, bad: int) -> bytes:
    """So many records, every tenth of which divides by zero; `bad` of them come with one that is none."""
    found = []
    for n in range(count):
        found.append(json.dumps({"n": n, "d": n % 10}).encode())
        if n < bad:
            found.append(POISON + b"%d" % n)
    return b"\n".join(found) + b"\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_bytes(lines(40, 3))
    return tmp_path


SLOW = pytest.mark.exhaustive


@pytest.mark.parametrize(
    ("parallelism", "batch_rows", "format"),
    [(2, 7, "json"), pytest.param(1, 131_072, "parquet", marks=SLOW), pytest.param(3, 1, "csv", marks=SLOW)],
)
def test_a_sink_gets_each_letter_with_its_bytes_and_provenance(
    folder: Path, parallelism: int, batch_rows: int, format: str
) -> None:
    text = pipeline(folder, format=format)
    run_text(folder, text, parallelism=parallelism, batch_rows=batch_rows)
    assert len(json_rows(folder / "out")) == 36
    if format != "json":
        assert sum(f.stat().st_size for f in written_files(folder / "dead")) > 0
        return
    letters = json_rows(folder / "dead")
    assert [*letters[0]] == list(DEAD_LETTER_SCHEMA.names)
    assert len({letter["id"] for letter in letters}) == len(letters)
    records = sorted(
        (letter for letter in letters if letter["kind"] == "decoding"), key=lambda r: int(str(r["offset"]))
    )
    assert [base64.b64decode(str(r["raw"])) for r in records] == [POISON + b"%d" % n for n in range(3)]
    data = (folder / "in" / "a.json").read_bytes()
    for record in records:
        raw = base64.b64decode(str(record["raw"]))
        assert data[int(str(record["offset"])) :].startswith(raw)
    facts = {k: records[0][k] for k in ("pipeline", "version", "place", "source", "format", "file")}
    assert facts == {
        "pipeline": "shop",
        "version": fingerprint_of((folder / "pipeline.yaml").read_text()),
        "place": "source 'rows'",
        "source": "rows",
        "format": "json",
        "file": str(folder / "in" / "a.json"),
    }
    assert len(str(records[0]["job"])) == 32
    rows = [letter for letter in letters if letter["kind"] == "expression"]
    assert sorted(json.loads(str(r["text"]))["n"] for r in rows) == [0, 10, 20, 30]
    assert {(r["place"], r["source"], r["raw"]) for r in rows} == {("step 'divided'", None, None)}


@SLOW
def test_the_same_record_has_the_same_id_in_every_run(folder: Path) -> None:
    ids = []
    text = pipeline(folder).replace("format: json}\n  letters", "format: json, sink.mode: append}\n  letters")
    for batch_rows in (3, 1000):
        run_text(folder, text, batch_rows=batch_rows)
        ids.append({r["id"] for r in json_rows(folder / "dead")})
        for file in written_files(folder / "dead"):
            file.unlink()
    assert ids[0] == ids[1]
    assert len(ids[0]) == 7


SCRIPT = """
SET 'flowrun.on_error' = 'skip';
{settings}
CREATE TABLE numbers (n INT, d INT)
WITH ('connector' = 'filesystem', 'path' = '{folder}/in', 'format' = 'json', {options});
CREATE TABLE results (n INT, q INT) WITH ('connector' = 'filesystem', 'path' = '{folder}/out', 'format' = 'json');
CREATE TABLE letters (reason VARCHAR(200), raw BYTES, `offset` BIGINT, id STRING{column})
WITH ('connector' = 'filesystem', 'path' = '{folder}/dead', 'format' = 'parquet');
INSERT INTO results SELECT n, d FROM numbers;
"""


@pytest.mark.parametrize(
    "options",
    [
        "'on-error.to' = 'letters'",
        pytest.param("'on-error' = 'dead-letter', 'on-error.to' = 'letters'", marks=SLOW),
        pytest.param("'format.on-error' = 'dead-letter', 'format.dead-letter.sink' = 'letters'", marks=SLOW),
    ],
)
def test_a_table_of_a_script_gets_those_columns_that_it_declares(folder: Path, options: str) -> None:
    path = folder / "job.sql"
    path.write_text(SCRIPT.format(folder=folder, settings="", options=options, column=""))
    run_file(path)
    (file,) = written_files(folder / "dead")
    rows = pq.read_table(file).to_pylist()
    assert [*rows[0]] == ["reason", "raw", "offset", "id"]
    assert sorted(r["raw"] for r in rows) == [POISON + b"%d" % n for n in range(3)]
    assert len(json_rows(folder / "out")) == 40


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("{sink: letters}", "{sink: leters}", ["there is no sink 'leters' for dead letters", "'letters'"]),
        ("{sink: letters}", "{sink: out}", ["sink 'out' gets the rows of its 'from'"]),
        ("{sink: letters}", "{sink: letters, folder: dead}", ["not to both"]),
        ("{sink: letters}", "dead", ["a sink needs the key 'from'"]),
        ("{sink: letters}", "{sink: letters, max_percent: 101}", ["'max_percent' must be at most 100"]),
        ("{sink: letters}", "{sink: letters, max_records: -1}", ["'max_records'"]),
        ("select: [n", "on_error: {max_records: 3}, select: [n", ["max_records"]),
        ("d: INT}", "d: INT}, format.dead-letter.sink: other, format.on-error: dead-letter", ["'other'"]),
        ("format: json}\n\n", "format: json, schema: {raw: INT}}\n\n", ["'raw'", "INT"]),
        ("format: json}\n\n", "format: json, schema: {nothing: INT}}\n\n", ["nothing"]),
    ],
)
def test_what_does_not_fit_is_said_before_anything_runs(folder: Path, old: str, new: str, says: list[str]) -> None:
    text = pipeline(folder) + "\n"
    assert old in text
    with pytest.raises(PipelineError) as found:
        run_text(folder, text.replace(old, new))
    for word in says:
        assert word in str(found.value)
    assert not (folder / "out").exists()


@SLOW
@pytest.mark.parametrize(
    ("settings", "options", "column", "says"),
    [
        ("", "'on-error.to' = 'leters'", "", "there is no table 'leters' for dead letters"),
        ("", "'on-error.to' = 'results'", "", "an INSERT writes table 'results'"),
        ("", "'on-error.to' = 'letters'", ", nothing INT", "have no column 'nothing'"),
        ("", "'on-error.to' = 'letters'", ", text INT", "'text' of 'letters' is INT"),
        ("", "'on-error.max-records' = 'x'", "", "'on-error.max-records' expects a whole number"),
        ("", "'on-error.max-percent' = '0'", "", "'on-error.max-percent' expects a number"),
        (
            "SET 'flowrun.dead_letters.sink' = 'letters'; SET 'flowrun.dead_letters' = 'dead';",
            "'on-error' = 'skip'",
            "",
            "not to both",
        ),
    ],
)
def test_what_does_not_fit_in_a_script_is_said(
    folder: Path, settings: str, options: str, column: str, says: str
) -> None:
    path = folder / "job.sql"
    path.write_text(SCRIPT.format(folder=folder, settings=settings, options=options, column=column))
    with pytest.raises(PipelineError) as found:
        run_file(path)
    assert says in str(found.value)


@pytest.mark.parametrize(
    ("limit", "fails"),
    [
        ("max_records: 2", "3 of 44 records are dead letters: max_records is 2"),
        pytest.param("max_records: 3", None, marks=SLOW),
        pytest.param("max_percent: 6.5", "3 of 43 records are dead letters: max_percent is 6.5", marks=SLOW),
        pytest.param("max_percent: 7", None, marks=SLOW),
    ],
)
def test_too_many_letters_of_a_source_fail_the_job(folder: Path, limit: str, fails: str | None) -> None:
    text = pipeline(folder, f"{{sink: letters, {limit}}}")
    if fails is None:
        run_text(folder, text)
        assert len(json_rows(folder / "dead")) == 7
        return
    with pytest.raises(JobFailedError) as found:
        run_text(folder, text)
    assert fails.partition(" of ")[0] in str(found.value)
    assert fails.partition(": ")[2] in str(found.value)
    assert "source 'rows'" in str(found.value)
    assert not (folder / "out").exists() or json_rows(folder / "out") == []


@SLOW
def test_a_source_says_its_own_limit_and_sink(folder: Path) -> None:
    source = ", on_error: {to: letters, max_records: 1}"
    text = pipeline(folder, f"{folder}/others", source)
    with pytest.raises(JobFailedError, match="max_records is 1"):
        run_text(folder, text)
    run_text(folder, text.replace("max_records: 1", "max_records: 9"))
    assert Counter(r["kind"] for r in json_rows(folder / "dead")) == {"decoding": 3}
    assert Counter(r["kind"] for r in json_rows(folder / "others")) == {"expression": 4}


LIMITED = """
settings:
  on_error: dead-letter
  dead_letters: {{sink: letters, max_records: {most}}}
  batch_rows: 5
  checkpoint: {{interval: 1ms, dir: {folder}/state}}
  restart: {{strategy: fixed_delay, attempts: 100, delay: 1ms}}
sources:
  rows: {{connector: filesystem, path: {folder}/in, format: json, schema: {{n: INT, d: INT}}}}
steps:
  flaky: {{from: rows, map: {{function: "letter_functions:flaky"}}}}
sinks:
  out: {{from: flaky, connector: filesystem, path: {folder}/out, format: json}}
  letters: {{connector: filesystem, path: {folder}/dead, format: json, parallelism: 2}}
"""
FUNCTIONS = """
import os

def flaky(batch):
    "The world outside fails as often as there are files to use up."
    for name in sorted(os.listdir(os.environ["FAILURES"])):
        if batch.num_rows and batch.column("n")[0].as_py() >= int(name):
            os.remove(os.path.join(os.environ["FAILURES"], name))
            raise ConnectionError("gone for a moment")
    return batch
"""


@SLOW
@pytest.mark.parametrize(("most", "parallelism"), [(30, 1), (30, 2), (29, 1)])
def test_restarts_write_letters_once_and_count_them_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, most: int, parallelism: int
) -> None:
    (folder / "in" / "a.json").write_bytes(lines(200, 30))
    (folder / "letter_functions.py").write_text(FUNCTIONS)
    (folder / "failures").mkdir()
    for at in (10, 20, 21, 140):
        (folder / "failures" / f"{at:03}").touch()
    monkeypatch.setenv("FAILURES", str(folder / "failures"))
    text = LIMITED.format(folder=folder, most=most)
    if most < 30:
        with pytest.raises(JobFailedError, match="max_records is 29"):
            run_text(folder, text, parallelism=parallelism)
        return
    assert run_text(folder, text, parallelism=parallelism).restarts == 4
    raw = [base64.b64decode(str(r["raw"])) for r in json_rows(folder / "dead")]
    assert sorted(raw) == sorted(POISON + b"%d" % n for n in range(30))
    assert len(json_rows(folder / "out")) == 200


@SLOW
@pytest.mark.parametrize(
    ("format", "columns", "good", "bad"),
    [
        ("json", "id: INT, t: STRING", b'{"id":1,"t":"a"}', b'{"id":"\xfe"}'),
        ("csv", "id: INT, t: STRING", b"1,a", b"\xfe,a"),
        (
            "debezium-json",
            "id: INT, t: STRING",
            b'{"before":null,"after":{"id":1,"t":"a"},"op":"c"}',
            b'{"before":null,"op":"c"\xfe}',
        ),
        ("canal-json", "id: INT, t: STRING", b'{"data":[{"id":"1","t":"a"}],"type":"INSERT"}', b'{"data":[\xfe}'),
        ("maxwell-json", "id: INT, t: STRING", b'{"data":{"id":1,"t":"a"},"type":"insert"}', b"\xfe"),
        ("ogg-json", "id: INT, t: STRING", b'{"after":{"id":1,"t":"a"},"op_type":"I"}', b"[\xfe"),
    ],
)
def test_poison_in_files_of_each_format_keeps_its_bytes(
    folder: Path, format: str, columns: str, good: bytes, bad: bytes
) -> None:
    (folder / "in" / "a.json").write_bytes(b"\n".join([good, bad, good, bad]) + b"\n")
    text = f"""
settings: {{on_error: dead-letter, dead_letters: {{sink: letters}}}}
sources:
  rows: {{connector: filesystem, path: {folder}/in, format: {format}, schema: {{{columns}}}}}
sinks:
  out: {{from: rows, connector: blackhole}}
  letters: {{connector: filesystem, path: {folder}/dead, format: json}}
"""
    run_text(folder, text)
    letters = json_rows(folder / "dead")
    assert [base64.b64decode(str(r["raw"])) for r in letters] == [bad, bad]
    assert {r["format"] for r in letters} == {format}
    assert len({r["id"] for r in letters}) == 2


@SLOW
def test_huge_records_are_kept_whole_and_their_text_is_cut(folder: Path) -> None:
    huge = b"x" * (2 << 20)
    (folder / "in" / "a.json").write_bytes(b"\n".join([huge + b"%d" % n for n in range(4)]) + b"\n")
    run_text(folder, pipeline(folder, format="parquet"))
    tables = [pq.read_table(f) for f in written_files(folder / "dead")]
    raw = sorted(value for t in tables for value in t.column("raw").to_pylist())
    assert raw == [huge + b"%d" % n for n in range(4)]
    assert {len(text) for t in tables for text in t.column("text").to_pylist()} == {(64 << 10) + 1}


@SLOW
def test_worker_processes_put_records_aside_as_one_process_does(folder: Path) -> None:
    path = folder / "p.yaml"
    path.write_text(pipeline(folder))
    for n in range(3):
        (folder / "in" / f"b{n}.json").write_bytes(lines(40, 3))
    with started(
        "run", path, "-p", 2, "--workers", 2, cwd=folder
    ) as run:  # forks, so there must be no threads of other tests
        _, said = run.communicate(timeout=120)
    assert run.returncode == 0, said
    assert Counter(r["kind"] for r in json_rows(folder / "dead")) == {"decoding": 12, "expression": 16}
    assert "12 rows put aside as dead letters (decoding 12)" in said


def test_explain_shows_the_sink(flowrun: Command, folder: Path) -> None:
    path = folder / "p.yaml"
    path.write_text(pipeline(folder))
    outcome = flowrun("explain", path)
    assert "Sink letters [parallelism=1]" in outcome.out
    assert "tag: dead letters" in outcome.out


PAGE = Path(__file__).parents[2] / "docs" / "dead-letters.md"


def test_the_examples_of_the_page_write_all_columns_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = PAGE.read_text(encoding="utf-8")
    yaml, script = (found.split("```")[0] for found in re.split(r"```(?:yaml|sql)\n", page)[1:3])
    described = re.findall(r"^\| (`.*?) \|", page, re.MULTILINE)
    assert [name for names in described for name in re.findall(r"`(\w+)`", names)] == list(DEAD_LETTER_SCHEMA.names)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "orders").mkdir(parents=True)
    (tmp_path / "data" / "orders" / "a.json").write_bytes(b'{"id": 1, "amount": 2.5}\n' + POISON + b"\n")
    run_text(tmp_path, yaml)
    (file,) = written_files(tmp_path / "out" / "letters")
    assert pq.read_table(file).column_names == list(DEAD_LETTER_SCHEMA.names)
    file.unlink()
    path = tmp_path / "job.sql"
    path.write_text(
        script
        + "CREATE TABLE orders (id BIGINT) WITH ('connector' = 'filesystem', 'path' = 'data/orders', 'format' = 'json');\n"
        "CREATE TABLE ids (id BIGINT) WITH ('connector' = 'blackhole');\nINSERT INTO ids SELECT id FROM orders;"
    )
    run_file(path)
    (letter,) = json_rows(tmp_path / "out" / "letters")
    assert set(letter) == set(DEAD_LETTER_SCHEMA.names)
    assert base64.b64decode(str(letter["raw"])) == POISON
