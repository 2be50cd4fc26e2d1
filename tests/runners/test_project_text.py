"""What a project adds to a pipeline travels with it: to resume, to other processes, and to an environment that is chosen later."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flowrun.errors import PipelineError
from flowrun.frontend.project_file import ENVIRONMENT
from flowrun.graph.fingerprint import fingerprint
from flowrun.runners.compile import CompiledPipeline, compile_kept, compile_pipeline, compile_sent
from flowrun.runners.job_modules import modules_of_job
from flowrun.runners.job_text import sent_job
from flowrun.runners.recompiling import recompiling
from flowrun.runtime.cluster_messages import JobText
from flowrun.runtime.rpc.codec import decode, encode
from flowrun.state.storage.metadata_json import _pipeline, _pipeline_of
from flowrun.state.storage.metadata_shape import _pipeline as pipeline_shape

PROJECT = """
variables: {FIRST: "1"}
environments: {prod: {settings: {parallelism: 2}, variables: {FIRST: "5"}}, staging: {settings: {parallelism: 3}}}
functions: {SHOUT: "lib.words:shout"}
tables: [tables.sql]
sources:
  numbers: {connector: datagen, number-of-rows: 3,
    fields.n.kind: sequence, fields.n.start: "${FIRST}", fields.n.end: 9, schema: {n: BIGINT}}
"""
TABLES = """CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '3', 'fields.n.kind' = 'sequence',
  'fields.n.start' = '${FIRST}', 'fields.n.end' = '9');"""
YAML = """steps: {loud: {from: numbers, select: ["SHOUT(OWN(CAST(n AS STRING))) AS who"]}}
functions: {OWN: "own:own"}
sinks: {out: {from: loud, connector: print}}"""
SQL = "CREATE FUNCTION OWN AS 'own.own' LANGUAGE PYTHON; SELECT SHOUT(OWN(CAST(n AS STRING))) AS who FROM numbers"
FUNCTION = "def {}(text: str) -> str:\n    return text\n"


@pytest.fixture(params=[("loud.yaml", YAML), ("loud.sql", SQL)], ids=["yaml", "sql"])
def file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    name, text = request.param
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "lib").mkdir()
    (tmp_path / "flowrun.yaml").write_text(PROJECT)
    (tmp_path / "tables.sql").write_text(TABLES)
    (tmp_path / "lib" / "words.py").write_text(FUNCTION.format("shout"))
    (tmp_path / "pipelines" / "own.py").write_text(FUNCTION.format("own"))
    (tmp_path / "pipelines" / name).write_text(text)
    return Path("pipelines") / name


def options(compiled: CompiledPipeline) -> str:
    return compiled.render("plan", "json")


def in_prod(file: Path) -> CompiledPipeline:
    return compile_pipeline(file, {}, {ENVIRONMENT: "prod"})


def test_what_is_kept_compiles_to_the_same_job_when_the_project_has_changed(file: Path, tmp_path: Path) -> None:
    first = in_prod(file)
    kept = _pipeline_of(json.loads(json.dumps(_pipeline(first.text))))
    pipeline_shape(_pipeline(first.text), "pipeline")
    assert kept == first.text
    (tmp_path / "flowrun.yaml").write_text("settings: {parallelism: 9}")
    (tmp_path / "tables.sql").unlink()
    for folder in (tmp_path / "pipelines", tmp_path):
        again = compile_kept(kept, functions_from=folder)
        assert fingerprint(again.job_graph) == fingerprint(first.job_graph)
        assert (again.plan.settings.parallelism, options(again)) == (2, options(first))


def test_another_environment_can_be_given_to_what_is_kept(file: Path) -> None:
    again = compile_kept(in_prod(file).text, {}, {ENVIRONMENT: "staging"}, Path("pipelines").absolute())
    assert again.plan.settings.parallelism == 3


def test_functions_of_the_project_are_only_imported_from_above_the_folder_that_is_named(
    file: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kept = in_prod(file).text
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "own.py").write_text(FUNCTION.format("own"))
    with pytest.raises(PipelineError, match="'lib"):
        compile_kept(kept, functions_from=elsewhere)


def test_other_processes_get_the_modules_of_both_folders_and_compile_the_same(file: Path, tmp_path: Path) -> None:
    first = in_prod(file)
    sent = sent_job(first.text, {}, {ENVIRONMENT: "prod"})
    assert {f.path for f in sent.files.files} == {"lib/words.py", "own.py"}
    text = decode(encode(sent.text, JobText), JobText)
    assert text == sent.text
    modules = tmp_path / "elsewhere"
    for path in ("lib/words.py", "own.py"):
        (modules / path).parent.mkdir(parents=True, exist_ok=True)
        (modules / path).write_text((tmp_path / ("pipelines/own.py" if path == "own.py" else path)).read_text())
    again = compile_sent(text.pipeline, {}, modules)
    assert fingerprint(again.job_graph) == fingerprint(first.job_graph)


def test_a_job_is_rescaled_with_what_its_project_said_when_it_began(file: Path, tmp_path: Path) -> None:
    again = recompiling(in_prod(file), {}, {ENVIRONMENT: "prod"})
    (tmp_path / "flowrun.yaml").write_text("")
    at_three = again.compile(3)
    assert isinstance(at_three, CompiledPipeline)
    assert at_three.plan.settings.parallelism == 3
    assert modules_of_job(at_three.text).files


def test_a_pipeline_outside_of_projects_keeps_nothing_of_one(tmp_path: Path) -> None:
    path = tmp_path / "plain.sql"
    path.write_text("SELECT 1")
    assert "project" not in _pipeline(compile_pipeline(path).text)
