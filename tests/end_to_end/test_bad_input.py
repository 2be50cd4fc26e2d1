"""Bad input of every kind: one clear message with place, cause and remedy, the right exit code, and nothing half-written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Command
from tests.end_to_end.running import json_rows, written_files

GOOD = '{"id": 1, "user": "a", "amount": 1.5, "ts": "2024-03-01 10:00:00.000"}\n'
PIPELINE = """\
name: test
sources:
  rows:
    connector: filesystem
    path: {data}
    format: json
    schema: {{id: BIGINT, user: STRING, amount: DOUBLE, ts: TIMESTAMP(3)}}
    watermark: {{column: ts, delay: 1s}}
    {source}
steps:
  out_rows:
    from: rows
    {step}
sinks:
  out: {{from: out_rows, connector: filesystem, path: {out}, format: json}}
"""


class Case:
    """A folder with data and a pipeline over it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data.json"
        self.data.write_text(GOOD * 3)
        self.out = folder / "out"

    def pipeline(self, step: str = "select: [id, user]", source: str = "", text: str | None = None) -> Path:
        path = self.folder / "pipeline.yaml"
        made = PIPELINE.format(data=self.data, out=self.out, step=step, source=source)
        path.write_text(made if text is None else text)
        return path


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def refuses(flowrun: Command, case: Case, pipeline: Path, code: int, *texts: str) -> str:
    """The command fails with `code`, says all `texts`, shows no traceback, and leaves no output."""
    outcome = flowrun("run", pipeline)
    for text in texts:
        assert text in outcome.err, outcome.err
    assert outcome.code == code, outcome.err
    assert "Traceback" not in outcome.err
    assert not case.out.exists() or [f for f in case.out.rglob("*") if f.is_file()] == []
    return outcome.err


WRONG_TEXT = [
    ("sources: {a: {conector: filesystem}}", ["did you mean 'connector'?", ":1:"]),
    ("sorces: {}", ["did you mean 'sources'?"]),
    ("name: [1, 2]\nsources: {}\nsinks: {}", ["name"]),
    (
        "sources: {a: {connector: filesystm, path: x}}\nsinks: {o: {from: a, connector: print}}",
        ["did you mean 'filesystem'?"],
    ),
    (
        "sources: {a: {connector: datagen, rows-per-secnd: 5, schema: {x: INT}}}\nsinks: {o: {from: a, connector: print}}",
        ["rows-per-second"],
    ),
    (
        "sources: {a: {connector: datagen, rows-per-second: many, schema: {x: INT}}}\nsinks: {o: {from: a, connector: print}}",
        ["integer", "many"],
    ),
    ("sources: {a: {connector: datagen, schema: {x: BIGNT}}}\nsinks: {o: {from: a, connector: print}}", ["BIGINT"]),
    (
        "sources: {a: {connector: datagen, schema: {x: INT}}}\nsteps: {s: {from: b}}\nsinks: {o: {from: s, connector: print}}",
        ["'b'"],
    ),
    (
        "sources: {a: {connector: datagen, schema: {x: INT}}}\nsteps: {s: {from: t}, t: {from: s}}\nsinks: {}",
        ["s", "t", "→"],
    ),
    ("sources: {a: {connector: datagen, schema: {x: INT}}}\nsinks: {}", ["sink"]),
    ("a: b: c", ["1:"]),
    ("name: x\nname: y\nsources: {}\nsinks: {}", ["name", "2:1"]),
]


@pytest.mark.parametrize(("text", "says"), WRONG_TEXT, ids=range(len(WRONG_TEXT)))
def test_wrong_text_is_refused_before_anything_runs(flowrun: Command, case: Case, text: str, says: list[str]) -> None:
    refuses(flowrun, case, case.pipeline(text=text), 2, "pipeline.yaml:", "error:", *says)


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ("filter: amout > 1", ["did you mean 'amount'?", "^"]),
        ("filter: amount + 1", ["BOOLEAN"]),
        ("filter: user > 1 AND", ["pipeline.yaml:"]),
        ("select: [UPER(user) AS u]", ["did you mean 'UPPER'"]),
        ("select: [amount + 1]", ["AS"]),
        ("filter: SUBSTRING(user) = 'a'", ["SUBSTRING"]),
        ("select: [id, COUNT(*) AS n]", ["aggregate"]),
        (
            "key_by: [usr]\n    window: {type: tumbling, size: 1m}\n    aggregate: [COUNT(*) AS n]",
            ["did you mean 'user'?"],
        ),
        ("window: {type: tumbling, size: 1 parsec}\n    aggregate: [COUNT(*) AS n]", ["10s"]),
        ("window: {type: tumbing, size: 1m}\n    aggregate: [COUNT(*) AS n]", ["did you mean 'tumbling'?"]),
        ("map: {function: 'nowhere:f', schema: {x: INT}}", ["nowhere"]),
        ("map: {function: 'os:system'}", ["'os' is a module of Python itself"]),
        ("map: builtins:eval", ["'builtins' is a module of Python itself"]),
        ("colour: red", ["colour"]),
    ],
)
def test_wrong_steps_are_refused_with_place_and_remedy(
    flowrun: Command, case: Case, step: str, says: list[str]
) -> None:
    refuses(flowrun, case, case.pipeline(step), 2, "pipeline.yaml:", *says)


def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(flowrun: Command, case: Case) -> None:
    outcome = flowrun("run", case.pipeline(), "--report", case.folder / "none" / "report.json")
    assert outcome.code == 2, outcome.err
    assert "Invalid value for --report: there is no folder" in outcome.err
    assert not case.out.exists()


def test_several_problems_are_reported_at_once(flowrun: Command, case: Case) -> None:
    pipeline = case.pipeline("filter: amout > 1\n    select: [UPER(user) AS u]\n    colour: red")
    errors = refuses(flowrun, case, pipeline, 2)
    assert errors.count("error:") >= 3


def test_a_missing_pipeline_and_a_missing_data_file_are_named(flowrun: Command, case: Case) -> None:
    outcome = flowrun("run", case.folder / "nothing.yaml")
    assert outcome.code == 2
    assert "nothing.yaml" in outcome.err
    case.data.unlink()
    refuses(flowrun, case, case.pipeline(), 2, "data.json")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"id": 2, "user": \n', ["data.json:4"]),
        (
            '{"id": "many", "user": "b", "amount": 2, "ts": "2024-03-01 10:00:00"}\n',
            ["data.json:4", "id", "many"],
        ),
        ('{"id": 2, "user": "b", "amount": 2, "ts": "yesterday"}\n', ["data.json:4", "yesterday"]),
        ("[1, 2]\n", ["data.json:4"]),
    ],
)
def test_a_broken_line_stops_the_job_with_file_and_line(
    flowrun: Command, case: Case, line: str, says: list[str]
) -> None:
    case.data.write_text(GOOD * 3 + line + GOOD)
    refuses(flowrun, case, case.pipeline("select: [id, user, amount, ts]"), 1, *says)


def test_broken_lines_can_be_skipped_and_are_counted(flowrun: Command, case: Case) -> None:
    case.data.write_text(GOOD + "nonsense\n" + GOOD)
    outcome = flowrun("run", case.pipeline(source="format.on-error: skip"))
    assert outcome.code == 0, outcome.err
    assert len(json_rows(case.out)) == 2
    assert "Source: rows: 1 row skipped (decoding 1)" in outcome.err


def test_broken_lines_can_be_kept_aside_with_file_offset_and_reason(flowrun: Command, case: Case) -> None:
    case.data.write_text(GOOD + "nonsense\n" + GOOD)
    letters = case.folder / "dead"
    outcome = flowrun(
        "run", case.pipeline(source=f"format.on-error: dead-letter\n    format.dead-letter.path: {letters}")
    )
    assert outcome.code == 0, outcome.err
    assert len(json_rows(case.out)) == 2
    (letter,) = json_rows(letters)
    assert letter["offset"] == len(GOOD)
    assert str(letter["file"]).endswith("data.json")
    assert letter["reason"]
    assert "nonsense" in json.dumps(letter)


def test_a_broken_csv_line_names_file_and_line(flowrun: Command, case: Case) -> None:
    data = case.folder / "data.csv"
    data.write_text("1,a\n2,b\nx,c\n")
    text = f"""\
sources: {{rows: {{connector: filesystem, path: {data}, format: csv, schema: {{id: BIGINT, user: STRING}}}}}}
sinks: {{out: {{from: rows, connector: filesystem, path: {case.out}, format: csv}}}}
"""
    refuses(flowrun, case, case.pipeline(text=text), 1, "data.csv:3", "id")


def test_parquet_of_another_type_is_named(flowrun: Command, case: Case) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = case.folder / "data.parquet"
    pq.write_table(pa.table({"id": ["a", "b"]}), data)
    text = f"""\
sources: {{rows: {{connector: filesystem, path: {data}, format: parquet, schema: {{id: BIGINT}}}}}}
sinks: {{out: {{from: rows, connector: filesystem, path: {case.out}, format: csv}}}}
"""
    refuses(flowrun, case, case.pipeline(text=text), 1, "data.parquet", "id", "BIGINT")


def test_time_that_goes_back_breaks_a_monotonous_source(flowrun: Command, case: Case) -> None:
    case.data.write_text(GOOD + GOOD.replace("10:00:00", "09:00:00"))
    pipeline = case.pipeline()
    pipeline.write_text(pipeline.read_text().replace("{column: ts, delay: 1s}", "{column: ts, type: monotonous}"))
    refuses(flowrun, case, pipeline, 1, "rows", "2024-03-01 09:00:00", "on_disorder")


def test_a_null_timestamp_is_named_with_its_source(flowrun: Command, case: Case) -> None:
    case.data.write_text(GOOD + '{"id": 2}\n')
    refuses(
        flowrun,
        case,
        case.pipeline("window: {type: tumbling, size: 1m}\n    aggregate: [COUNT(*) AS n]"),
        1,
        "rows",
        "ts",
    )


def test_a_null_key_fails_unless_told_otherwise(flowrun: Command, case: Case) -> None:
    case.data.write_text(GOOD + GOOD.replace('"a"', "null"))
    window = "key_by: [user]\n    window: {{type: tumbling, size: 1m}}\n    aggregate: [COUNT(*) AS n]{}"
    refuses(flowrun, case, case.pipeline(window.format("")), 1, "user", "null_keys")
    assert flowrun("run", case.pipeline(window.format("\n    null_keys: group"))).code == 0
    assert {r["user"] for r in json_rows(case.out)} == {"a", None}
    for file in written_files(case.out):
        file.unlink()
    assert flowrun("run", case.pipeline(window.format("\n    null_keys: drop"))).code == 0
    assert {r["user"] for r in json_rows(case.out)} == {"a"}


FUNCTIONS = """
import pyarrow as pa

def raises(batch):
    raise RuntimeError("kaboom")

def raises_on_a_row(row):
    if row["id"] == 2:
        raise RuntimeError("kaboom")
    return row

def wrong_columns(batch):
    return batch.select(["id"])

def wrong_type(batch):
    return pa.record_batch({"id": ["x"] * batch.num_rows})

def fewer_rows(batch):
    return batch.slice(1)

def nothing(batch):
    return None
"""


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ("map: {function: 'functions:raises'}", ["functions:raises", "kaboom"]),
        ("map: {function: 'functions:raises_on_a_row', row: true}", ["functions:raises_on_a_row", "kaboom", "row 1"]),
        ("map: {function: 'functions:wrong_columns'}", ["functions:wrong_columns", "user"]),
        ("map: {function: 'functions:wrong_type', schema: {id: BIGINT}}", ["functions:wrong_type", "BIGINT"]),
        ("map: {function: 'functions:fewer_rows'}", ["functions:fewer_rows", "rows"]),
        ("map: {function: 'functions:nothing'}", ["functions:nothing", "RecordBatch"]),
    ],
)
def test_a_python_function_that_misbehaves_is_named(flowrun: Command, case: Case, step: str, says: list[str]) -> None:
    (case.folder / "functions.py").write_text(FUNCTIONS)
    case.data.write_text(GOOD + GOOD.replace('"id": 1', '"id": 2'))
    refuses(flowrun, case, case.pipeline(step), 1, "out_rows", *says)


def test_an_expression_that_fails_names_its_row(flowrun: Command, case: Case) -> None:
    case.data.write_text(GOOD * 2 + GOOD.replace('"id": 1', '"id": 0'))
    refuses(flowrun, case, case.pipeline("select: [100 / id AS x]"), 1, "out_rows", "row 2", "division by zero")


def test_a_sink_that_cannot_be_written_is_named(flowrun: Command, case: Case) -> None:
    case.out.write_text("I am a file")
    outcome = flowrun("run", case.pipeline())
    assert outcome.code in (1, 2)
    assert str(case.out) in outcome.err
    assert "Traceback" not in outcome.err
    assert case.out.read_text() == "I am a file"


def test_a_failure_late_in_the_job_leaves_no_output(flowrun: Command, case: Case) -> None:
    case.data.write_text(GOOD * 200_000 + "broken\n")
    refuses(flowrun, case, case.pipeline(), 1, "data.json:200001")


def test_tracebacks_are_shown_when_asked_for(flowrun: Command, case: Case) -> None:
    case.data.write_text("broken\n")
    assert "Traceback" in flowrun("--traceback", "run", case.pipeline()).err
