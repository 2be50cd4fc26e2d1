"""Texts of pipelines that are validated, previewed and submitted over the REST API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowrun.frontend.pipeline import LoadedPipeline, load_text
from flowrun.frontend.source_text import SourceText
from flowrun.rest.bodies import body_of
from flowrun.rest.compilation import Purpose, compile_elsewhere, compiled_here
from flowrun.rest.refusals import Refused
from flowrun.rest.texts import Preview, PreviewRequest, SubmitRequest
from flowrun.state.checkpoints import ProjectText
from tests.rest.asking import Api
from tests.rest.control_fakes import FakeJob, controlled

NUMBERS = """
SET 'pipeline.name' = 'numbers';
CREATE TABLE ids (id BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '1000', 'fields.id.kind' = 'sequence',
  'fields.id.start' = '0', 'fields.id.end' = '999');
CREATE TABLE found (id BIGINT, note STRING) WITH ('connector' = 'filesystem', 'path' = '${out}', 'format' = 'json');
INSERT INTO found SELECT id, '${note}' FROM ids WHERE id < 10;
"""


def request(text: str = NUMBERS, **more: Any) -> SubmitRequest:
    return SubmitRequest(text, variables={"out": "out"}, secrets={"note": "hunter22"}, **more)


def test_a_preview_has_promises_plan_and_graph_and_no_secrets() -> None:
    preview = compiled_here(request(), Purpose.PREVIEW).preview
    assert (preview.valid, preview.name, preview.mode) == (True, "numbers", "streaming")
    assert [d.sink for d in preview.delivery] == ["found"]
    assert preview.vertices[0].operators[0].is_source
    assert "found" in preview.plan


def test_all_errors_of_a_text_are_told_with_their_places() -> None:
    text = "CREATE TABLE a (x INT) WITH ('connector' = 'datagen');\nINSERT INTO nowhere SELECT y FROM a;"
    found = compiled_here(SubmitRequest(text), Purpose.VALIDATE)
    assert not found.preview.valid
    assert found.submission is None
    assert {p.line for p in found.preview.problems} == {2}
    assert all(p.severity == "error" and p.column and p.length for p in found.preview.problems)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT 1;", "cannot run|needs|print|process"),
        ("SET 'execution.runtime-mode' = 'batch';" + NUMBERS, "runs on Spark"),
        ("CREATE TABLE a (x INT) WITH ('connector' = 'datagen');", "it writes to no sink"),
    ],
)
def test_what_a_cluster_cannot_run_is_not_submitted(text: str, message: str) -> None:
    found = compiled_here(request(text), Purpose.SUBMIT)
    assert found.submission is None
    (problem,) = found.preview.problems
    assert any(part in problem.message for part in message.split("|")), problem


def test_state_that_is_not_there_is_named() -> None:
    found = compiled_here(request(from_savepoint="/nowhere"), Purpose.SUBMIT)
    assert found.failure is not None
    assert "/nowhere" in found.failure.error


def test_secrets_go_with_the_job_and_are_not_kept_with_its_text() -> None:
    submission = compiled_here(request(), Purpose.SUBMIT).submission
    assert submission is not None
    assert submission.text.secrets == {"note": "hunter22"}
    assert submission.text.pipeline.variables == {"out": "out"}
    assert submission.text.pipeline.withheld == ("note",)


@pytest.mark.exhaustive
def test_functions_of_modules_in_the_working_directory_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("raise SystemExit('imported')\n")
    text = "CREATE FUNCTION f AS 'mine:f' LANGUAGE PYTHON;\n" + NUMBERS.replace("'${note}'", "f(id)")
    found = compile_elsewhere(request(text), Purpose.VALIDATE)
    assert not found.preview.valid
    assert "imported" not in str(found)


@pytest.mark.exhaustive
def test_a_text_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowrun.rest.compilation.COMPILE_S", 0.05)
    with pytest.raises(Refused, match="not compiled after") as refused:
        compile_elsewhere(request(), Purpose.PREVIEW)
    assert refused.value.status == 503


@pytest.mark.exhaustive
def test_a_job_of_one_process_validates_and_takes_no_other(tmp_path: Path) -> None:
    with controlled(FakeJob(), tmp_path) as endpoint:
        api = Api(f"http://127.0.0.1:{endpoint.entry.port}/", endpoint.entry.token)
        body = {"text": NUMBERS, "variables": {"out": "o"}, "secrets": {"note": "hunter22"}}
        status, answer, _ = api.ask("POST", "/v1/validate", body)
        assert (status, answer["valid"], answer["problems"]) == (200, True, [])
        status, answer, _ = api.ask("POST", "/v1/preview", {**body, "text": NUMBERS + "nonsense;"})
        assert (status, answer["valid"]) == (200, False)
        assert "hunter22" not in str(answer)
        status, answer, _ = api.ask("POST", "/v1/jobs", body)
        assert (status, answer["error"]) == (409, "this process runs one job, and takes no others")
        for wrong in ({}, {"text": ""}, {"text": "x", "file": "../x.sql"}, {"text": "x", "file": "x.py"}, {"text": 1}):
            assert api.ask("POST", "/v1/preview", wrong)[0] == 400
        assert api.ask("POST", "/v1/preview", {"text": "x" * 1_100_000})[0] == 413


def test_what_is_wrong_with_a_body_is_said_in_words() -> None:
    with pytest.raises(Refused) as name:
        body_of(b'{"text": "x", "file": "../x.sql"}', PreviewRequest)
    assert name.value.failure.error == (
        "the body is not what it must be: 'file' is the name of a file, without folders, that ends in .sql, .yaml or .yml,"
        " not '../x.sql'"
    )
    with pytest.raises(Refused, match=r"Expected `str`, got `int` - at `\$.text`") as kind:
        body_of(b'{"text": 1}', PreviewRequest)
    assert "openapi.json" in str(kind.value.failure.hint)


def sampled(text: str, **more: Any) -> Preview:
    return compiled_here(PreviewRequest(text, **more), Purpose.PREVIEW).preview


def test_a_preview_runs_a_sample_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values = {"variables": {"out": "out"}, "secrets": {"note": "hunter22"}}
    found = sampled(NUMBERS, rows=3, sample=2_000, **values).sampled
    assert found is not None
    assert (found.read, found.was_cut) == ({"ids": 1_000}, False)
    (table,) = found.tables
    assert (table.name, table.columns, table.types, table.row_count) == (
        "found",
        ("id", "note"),
        ("BIGINT", "STRING"),
        10,
    )
    assert table.rows == (("0", "hunter22"), ("1", "hunter22"), ("2", "hunter22"))
    assert not list(tmp_path.iterdir())
    assert sampled(NUMBERS, **values).sampled is None


def test_a_sample_of_an_aggregate_is_its_final_table_and_of_an_endless_source_a_part() -> None:
    endless = NUMBERS.replace("'number-of-rows' = '1000', ", "").replace(
        "SELECT id, '${note}' FROM ids WHERE id < 10", "{}"
    )
    endless = endless.replace("'999'", "'99999999'").replace("${out}", "out")
    counts = endless.format("SELECT id % 2, CASE WHEN COUNT(*) > 2 THEN NULL ELSE 'few' END FROM ids GROUP BY id % 2")
    found = sampled(counts.replace("'json'", "'debezium-json'"), rows=10, sample=500).sampled
    assert found is not None
    assert found.was_cut
    assert found.read["ids"] >= 500
    assert sorted(found.tables[0].rows) == [("0", None), ("1", None)]


def test_what_is_wrong_with_a_sample_is_a_problem_of_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    missing = (
        "CREATE TABLE a (x INT) WITH ('connector' = 'filesystem', 'path' = 'nowhere', 'format' = 'json');\n"
        "CREATE TABLE b (x INT) WITH ('connector' = 'blackhole');\nINSERT INTO b SELECT x FROM a;"
    )
    assert sampled(missing).valid, "without rows it needs no files"
    found = sampled(missing, rows=1)
    assert not found.valid
    assert "nowhere" in found.problems[0].message
    fails = NUMBERS.replace("WHERE id < 10", "WHERE 1 / (id - 5) > 0")
    found = sampled(fails, rows=1, variables={"out": "out", "note": "x"})
    assert not found.valid
    assert "division by zero" in found.problems[0].message


@pytest.mark.exhaustive
def test_samples_come_over_the_api_with_secrets_masked(tmp_path: Path) -> None:
    with controlled(FakeJob(), tmp_path) as endpoint:
        api = Api(f"http://127.0.0.1:{endpoint.entry.port}/", endpoint.entry.token)
        body = {"text": NUMBERS, "variables": {"out": "o"}, "secrets": {"note": "hunter22"}, "rows": 2}
        status, answer, _ = api.ask("POST", "/v1/preview", body)
        assert (status, answer["valid"], answer["sampled"]["tables"][0]["row_count"]) == (200, True, 10)
        assert len(answer["sampled"]["tables"][0]["rows"]) == 2
        assert "hunter22" not in str(answer)
        for wrong in ({"rows": -1}, {"rows": 1_001}, {"sample": 0}, {"seconds": 21}):
            assert api.ask("POST", "/v1/preview", {**body, **wrong})[0] == 400


def test_the_text_of_a_sample_is_bound_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[str] = []
    load = load_text

    def counted(source: SourceText, *more: Any, **options: Any) -> LoadedPipeline:
        bound.append(source.file)
        return load(source, *more, **options)

    for module in ("compile", "preview"):
        monkeypatch.setattr(f"flowrun.runners.{module}.load_text", counted)
    values = {"variables": {"out": "out"}, "secrets": {"note": "hunter22"}}
    found = sampled(NUMBERS, rows=3, **values).sampled
    assert found is not None
    assert (len(found.tables[0].rows), bound) == (3, ["pipeline.sql"])
    of_a_batch = sampled("SET 'execution.runtime-mode' = 'batch';" + NUMBERS, rows=3, **values).sampled
    assert of_a_batch is not None
    assert len(of_a_batch.tables[0].rows) == 3, "as a stream"


def test_relative_paths_start_where_the_request_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs").mkdir()
    submitted = request(
        working_directory=str(tmp_path / "jobs"), directory="/home/jobs", committed_after="keep", upgrade="u1"
    )
    submission = compiled_here(submitted, Purpose.SUBMIT).submission
    assert submission is not None
    kept = submission.text.pipeline
    assert (kept.working_directory, kept.directory) == (str(tmp_path / "jobs"), "/home/jobs")
    assert kept.file_name == "/home/jobs/pipeline.sql", "as messages call it, and `flowrun why FILE` looks for it"
    assert (submission.committed_after, submission.upgrade) == ("keep", "u1")
    (problem,) = compiled_here(request(working_directory=str(tmp_path / "gone")), Purpose.SUBMIT).preview.problems
    assert "the cluster cannot go to" in problem.message


def test_what_a_project_adds_comes_with_the_text() -> None:
    begin, end = NUMBERS.index("CREATE TABLE ids"), NUMBERS.index("CREATE TABLE found")
    project = ProjectText("flowrun.yaml", "", "/nowhere", {"shared.sql": NUMBERS[begin:end]})
    text = NUMBERS[:begin] + NUMBERS[end:]
    assert compiled_here(request(text), Purpose.SUBMIT).submission is None, "it has no table 'ids' by itself"
    submission = compiled_here(request(text, project=project), Purpose.SUBMIT).submission
    assert submission is not None
    assert submission.text.pipeline.project == project
