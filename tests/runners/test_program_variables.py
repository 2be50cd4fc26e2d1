"""Variables of a program that is in a project: where they come from, and that they go with its job."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest

from flowrun.errors import PipelineError
from flowrun.frontend.pipeline import project_of
from flowrun.frontend.project_file import ENVIRONMENT
from flowrun.runners.program import compile_program, compile_sent_program
from flowrun.runners.program_variables import program_variables, shared_of_program

PROGRAM = """\
from flowrun.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment("job")
env.from_elements(1, 2, name=env.variables["NAME"]).add_sink(print, name="shown")
env.execute()
"""
PROJECT = (
    "variables: {NAME: '${FIRST} one', KEY: '${secret:file:key}'}\nenvironments: {prod: {variables: {NAME: another}}}\n"
)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    folder = tmp_path / "shop" / "jobs"
    folder.mkdir(parents=True)
    (folder.parent / "flowrun.yaml").write_text(PROJECT)
    (folder / "job.py").write_text(PROGRAM)
    return folder / "job.py"


def test_what_the_project_says_goes_with_the_job(program: Path, tmp_path: Path) -> None:
    compiled = compile_program(program, {"FIRST": "the"}, {})
    assert compiled.reads[0].name == "the one"
    assert compiled.text.variables == {"FIRST": "the"}, "those of the project are kept as it writes them"
    (elsewhere := tmp_path / "elsewhere").mkdir()
    shutil.move(program, elsewhere)
    (program.parent.parent / "flowrun.yaml").unlink()
    again = compile_sent_program(compiled.text, compiled.text.variables, elsewhere)
    assert again.reads[0].name == "the one"
    assert again.text == compiled.text


def test_the_environment_goes_with_the_job(program: Path) -> None:
    compiled = compile_program(program, {}, {ENVIRONMENT: "prod"})
    assert compiled.text.overrides == {ENVIRONMENT: "prod"}
    again = compile_sent_program(compiled.text, {}, program.parent)
    assert again.reads[0].name == compiled.reads[0].name == "another"


def test_values_are_filled_when_they_are_asked_for(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAME", "of the process")
    monkeypatch.setenv("PLACE", "here")
    found = program_variables({"FIRST": "my"}, shared_of_program(program, {}, project_of(program)))
    assert (found["NAME"], found["FIRST"], found["PLACE"]) == ("my one", "my", "here")
    assert (found.get("NONE", "else"), "KEY" in found, "NONE" in found) == ("else", True, False)
    assert {"NAME", "FIRST", "PLACE", "KEY"} <= set(found)
    with pytest.raises(PipelineError, match="cannot read the secret file"):
        found["KEY"]
    (program.parent.parent / "key").write_text("0123456789\n")
    assert found["KEY"] == "0123456789"
    assert pickle.loads(pickle.dumps(found)) == dict(found)
