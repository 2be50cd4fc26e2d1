"""What a checkpoint keeps of a pipeline's text, and that it can be compiled again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from flowrun.errors import PipelineError
from flowrun.frontend.pipeline import LoadedPipeline
from flowrun.plan.nodes import Plan, Scan, Sink, walk_plan
from flowrun.runners.compile import compile_kept, compile_pipeline
from flowrun.runners.pipeline_text import check_folders, text_to_keep, withheld_values
from flowrun.runners.places_of_functions import functions_folder
from flowrun.state.checkpoints import PipelineText

TEXT = """\
settings: {parallelism: 1, checkpoint: {interval: 1s}}
sources:
  rows: {connector: datagen, number-of-rows: "${ROWS}", schema: {id: BIGINT}}
steps:
  doubled: {from: rows, map: "functions:double"}
sinks:
  out: {from: doubled, connector: "${SINK}"}
"""
FUNCTIONS = "def double(batch):\n    return batch\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "functions.py").write_text(FUNCTIONS)
    (folder / "orders.yaml").write_text(TEXT)
    return folder / "orders.yaml"


def test_the_text_is_kept_as_written_with_what_the_command_line_gave(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SINK", "print")
    monkeypatch.chdir(path.parent)
    kept = compile_pipeline(Path("orders.yaml"), {"ROWS": "7"}, {"settings.parallelism": "2"}).text
    assert kept == PipelineText(
        "orders.yaml", TEXT, str(path.parent), {"ROWS": "7"}, {"settings.parallelism": "2"}, str(path.parent)
    )
    assert "print" not in str(kept), "the environment is looked up anew"


def test_a_kept_text_gives_the_same_pipeline_wherever_it_is_compiled(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SINK", "print")
    first = compile_pipeline(path, {"ROWS": "7"}, {"settings.parallelism": "2"})
    monkeypatch.chdir(tmp_path)
    again = compile_kept(first.text, functions_from=path.parent)
    assert again.render("job", "json") == first.render("job", "json")
    assert again.plan.name == "orders"
    assert again.text == replace(first.text, working_directory=str(tmp_path))


def test_what_is_given_on_resumption_is_added_and_wins(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINK", "print")
    kept = compile_pipeline(path, {"ROWS": "7"}, {"settings.parallelism": "2"}).text
    given = {"settings.parallelism": "3", "settings.batch_rows": "5"}
    again = compile_kept(kept, {"ROWS": "8"}, given, path.parent)
    assert [v.parallelism for v in again.job_graph.vertices] == [3]
    assert again.text.variables == {"ROWS": "8"}
    assert again.text.overrides == {"settings.parallelism": "3", "settings.batch_rows": "5"}


@pytest.mark.parametrize("gone", ["directory", "working_directory"])
def test_a_folder_that_is_gone_is_named_with_a_remedy(path: Path, gone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINK", "print")
    kept = replace(compile_pipeline(path, {"ROWS": "7"}).text, **{gone: "/no/such/place"})  # type: ignore[arg-type]
    with pytest.raises(PipelineError, match=r"'/no/such/place'.* is not there any more") as refused:
        check_folders(kept)
    assert "flowrun resume --from-savepoint PATH FILE" in str(refused.value)


def with_secret(plan: Plan, **options: object) -> Plan:
    """The plan, as if all these options of its sink were secret."""
    sink = plan.sinks[0]
    table = replace(sink.table, options={**sink.table.options, **options}, secret_options=frozenset(options))
    return replace(plan, sinks=(replace(sink, table=table),))


@pytest.mark.parametrize(
    ("variables", "overrides", "kept_variables", "kept_overrides", "withheld"),
    [
        ({"USER": "ada", "PASSWORD": "hunter2"}, {}, {"USER": "ada"}, {}, ("PASSWORD",)),
        ({"EMPTY": ""}, {}, {"EMPTY": ""}, {}, ()),
        (
            {},
            {"sinks.out.pass-word": "hunter2", "settings.parallelism": "2"},
            {},
            {"sinks.out.pass-word": "${SINKS_OUT_PASS_WORD}", "settings.parallelism": "2"},
            ("SINKS_OUT_PASS_WORD",),
        ),
    ],
)
def test_values_of_secret_options_are_never_kept(
    path: Path,
    variables: Mapping[str, str],
    overrides: Mapping[str, str],
    kept_variables: Mapping[str, str],
    kept_overrides: Mapping[str, str],
    withheld: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SINK", "print")
    plan = with_secret(compile_pipeline(path, {"ROWS": "7"}).plan, password="user:hunter2"[5:])
    assert any(isinstance(n, Scan | Sink) for n in walk_plan(plan))
    kept = text_to_keep(path, LoadedPipeline(plan), variables, overrides)
    assert (kept.variables, kept.overrides, kept.withheld) == (kept_variables, kept_overrides, withheld)
    assert "hunter2" not in str(kept)


def test_who_resumes_gives_a_withheld_value_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINK", "print")
    kept = replace(compile_pipeline(path, {"ROWS": "7"}).text, variables={}, withheld=("ROWS",))
    with pytest.raises(PipelineError, match="'ROWS' was not kept with the state, as its value is secret") as refused:
        compile_kept(kept)
    assert "--secret-var ROWS=…" in str(refused.value)
    again = compile_kept(kept, {"ROWS": "7"}, functions_from=path.parent).text
    assert (again.variables, again.withheld) == ({}, ("ROWS",)), "a secret stays one however it is given"


def test_nothing_is_imported_from_a_folder_that_only_the_state_names(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SINK", "print")
    kept = compile_pipeline(path, {"ROWS": "7"}).text
    traced = path.parent / "imported"
    (path.parent / "planted.py").write_text(f"import os\nos.mkdir({str(traced)!r})\n" + FUNCTIONS)
    altered = replace(kept, text=TEXT.replace("functions:double", "planted:double"))
    with pytest.raises(PipelineError, match="are imported only from a folder that you name") as refused:
        compile_kept(altered)
    assert f"--functions-from {path.parent}" in str(refused.value)
    assert not traced.exists()
    compile_kept(altered, functions_from=path.parent)
    assert traced.exists()


def test_the_folder_to_name_is_said_only_where_it_is_needed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINK", "print")
    kept = compile_pipeline(path, {"ROWS": "7"}).text
    assert functions_folder(kept) == str(path.parent)
    assert functions_folder(replace(kept, text="sources: {}")) is None
    monkeypatch.chdir(path.parent)
    assert functions_folder(kept) is None


@pytest.mark.parametrize("where", ["file", "command line", "script"])
def test_auto_is_a_number_from_then_on(path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.setenv("SINK", "print")
    monkeypatch.setattr("flowrun.frontend.settings.reading.usable_cores", lambda: 3)
    overrides = {"settings.parallelism": "auto"} if where == "command line" else {}
    if where == "file":
        path.write_text(TEXT.replace("parallelism: 1", "parallelism: auto"))
    if where == "script":
        path = path.with_suffix(".sql")
        path.write_text(
            "SET 'parallelism.default' = 'auto';\n"
            "CREATE TABLE n (id BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '${ROWS}');\nSELECT id FROM n;\n"
        )
    compiled = compile_pipeline(path, {"ROWS": "7"}, overrides)
    assert {v.parallelism for v in compiled.job_graph.vertices} == {3}
    assert compiled.text.overrides == {"settings.parallelism": "3"}
    assert withheld_values(compiled.text, {"ROWS": "7"}, overrides) == {}
    monkeypatch.setattr("flowrun.frontend.settings.reading.usable_cores", lambda: 8)
    again = compile_kept(compiled.text, functions_from=path.parent)
    assert {v.parallelism for v in again.job_graph.vertices} == {3}, "as the state was, whatever this machine has"


def test_what_is_neither_a_number_nor_auto_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SINK", "print")
    with pytest.raises(PipelineError, match="'parallelism' expects a whole number of at least 1, or auto, got"):
        compile_pipeline(path, {"ROWS": "7"}, {"settings.parallelism": "all"})
