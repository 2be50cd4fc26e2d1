"""Programs in Python run by the command line, in real processes: with its options, checkpoints, kills and resumptions."""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Command
from tests.end_to_end.processes import started, wait_for
from tests.end_to_end.running import json_rows

PROGRAM = """\
import helpers
from flowrun.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment("words").enable_checkpointing(100)
count = int(env.variables.get("COUNT", "10"))
pause = float(env.variables.get("PAUSE", "0"))


def numbers(context):
    import time

    for n in range(context.restored_position.get("next", 0), count):
        context.collect_row({"word": "abc"[n % 3], "n": n}, position={"next": n + 1})
        time.sleep(pause)


def is_wanted(row):
    return row["n"] >= helpers.LEAST


words = env.add_source(numbers, "word STRING, n BIGINT", bounded=True, name="numbers").uid("numbers")
sums = words.filter(is_wanted).key_by("word").sum("n").uid("sums")
sums.to_connector("filesystem", {"path": "out", "sink.mode": "append"}, format="json", name="out").uid("out")

if __name__ == "__main__":
    result = env.execute()
    print("after the job:", result.state.name)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "job.py").write_text(PROGRAM)
    (tmp_path / "helpers.py").write_text("LEAST = 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "helpers", None)
    del sys.modules["helpers"]
    return tmp_path


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(PROGRAM.splitlines(), 1) if text in line)


def expected(count: int) -> Counter[tuple[str, int]]:
    rows: Counter[tuple[str, int]] = Counter()
    sums = {"a": 0, "b": 0, "c": 0}
    for n in range(count):
        word = "abc"[n % 3]
        sums[word] += n
        rows[word, sums[word]] += 1
    return rows


def written(project: Path) -> Counter[tuple[str, int]]:
    return Counter((str(r["word"]), int(str(r["n"]))) for r in json_rows(project / "out"))


def test_a_program_runs_to_its_end_and_goes_on_behind_its_job(project: Path, flowrun: Command) -> None:
    done = flowrun("run", "job.py", "--var", "COUNT=20", "-p", "2", "--report", "report.json")
    assert (done.code, done.out) == (0, "after the job: FINISHED\n"), done.err
    assert written(project) == expected(20)
    report = json.loads((project / "report.json").read_text())
    assert {v["parallelism"] for v in report["vertices"]} == {2}
    assert report["checkpoints"] is not None


def test_a_program_is_explained_and_validated_without_running(project: Path, flowrun: Command) -> None:
    shown = flowrun("explain", "job.py")
    assert "[4] one input  sum" in shown.out
    assert "uid sums" in shown.out
    everything = flowrun("explain", "job.py", "--stage", "all").out
    assert [f"== {s} ==" in everything for s in ("plan", "transformations", "stream", "job", "execution")] == [
        False, True, True, True, True,
    ]  # fmt: skip
    assert flowrun("validate", "job.py").out == (
        "job.py: valid\n  sink 'out': at least once — source 'numbers': connector FunctionSource may replay rows twice\n"
    )
    assert not (project / "out").exists()


SHARED = """\
variables: {COUNT: "7", FOLDER: "${PLACE:-out}/here", PASSWORD: "${secret:env:NOT_SET}"}
environments: {prod: {variables: {COUNT: 9}}}
"""


def test_a_program_has_the_variables_of_its_project(
    project: Path, flowrun: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes first: the command line, the environment, the project, the process. Only what it uses is filled."""
    (project / "flowrun.yaml").write_text(SHARED)
    text = PROGRAM.replace('{"path": "out"', '{"path": env.variables["FOLDER"]')
    (project / "job.py").write_text(text)
    monkeypatch.setenv("COUNT", "11")
    monkeypatch.setenv("PAUSE", "0.0")

    def rows(*words: str) -> int:
        for file in project.glob("*/here/*.json"):
            file.unlink()
        done = flowrun("run", "job.py", *words)
        assert done.code == 0, done.err
        return sum(len(json_rows(folder)) for folder in project.glob("*/here"))

    assert rows() == 7
    assert rows("--env", "prod") == 9
    assert rows("--env", "prod", "--var", "COUNT=3", "--var", "PLACE=other") == 3
    assert list((project / "other/here").iterdir())
    assert flowrun("validate", "job.py", "--env", "prod").code == 0
    unknown = flowrun("run", "job.py", "--env", "pod")
    assert (unknown.code, "there is no environment 'pod' in flowrun.yaml" in unknown.err) == (2, True), unknown.err
    (project / "job.py").write_text(text + 'env.variables["PASSWORD"]\n')
    secret = flowrun("run", "job.py")
    assert secret.code != 0
    assert "flowrun.yaml:1:" in secret.err
    assert "the secret's environment variable 'NOT_SET' is not set" in secret.err


def test_a_program_goes_on_in_the_environment_in_which_it_began(project: Path, flowrun: Command) -> None:
    (project / "flowrun.yaml").write_text(SHARED.replace("COUNT: 9", "COUNT: 90, PAUSE: 0.02"))
    with started("run", "job.py", "--env", "prod", cwd=project) as process:
        wait_for(lambda: list((project / ".flowrun").glob("state/*/chk-[3-9]")), process)
        process.kill()
        process.wait()
    done = flowrun("resume", "--from-savepoint", ".flowrun/state", "-p", "2", "--var", "PAUSE=0")
    assert done.code == 0, done.err
    assert written(project) == expected(90)


def test_without_a_project_there_is_no_environment(project: Path, flowrun: Command) -> None:
    done = flowrun("run", "job.py", "--env", "prod")
    assert done.code == 2
    assert "--env prod: there is no flowrun.yaml in" in done.err


def test_a_program_is_killed_and_resumed(project: Path, flowrun: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """State goes on from the checkpoint, at another parallelism, and from the file that is here, not from what state names."""
    options = ("--var", "COUNT=90", "--var", "PAUSE=0.02")
    with started("run", "job.py", *options, cwd=project) as process:
        wait_for(lambda: list((project / ".flowrun").glob("state/*/chk-[3-9]")), process)
        process.kill()
        process.wait()
    monkeypatch.chdir(project.parent)
    elsewhere = flowrun("resume", "--from-savepoint", project / ".flowrun/state")
    monkeypatch.chdir(project)
    assert elsewhere.code == 2
    assert "give the program: flowrun resume --from-savepoint" in elsewhere.err
    state = flowrun("plan", "--from-savepoint", ".flowrun/state", "job.py")
    assert state.code == 0, state.err
    done = flowrun("resume", "--from-savepoint", ".flowrun/state", "-p", "2", "--var", "PAUSE=0")
    assert (done.code, done.out) == (0, "after the job: FINISHED\n"), done.err
    assert written(project) == expected(90)


def test_an_interrupt_takes_a_last_checkpoint_and_ends_the_program(project: Path, flowrun: Command) -> None:
    with started("run", "job.py", "--var", "COUNT=9000", "--var", "PAUSE=0.01", cwd=project) as process:
        wait_for(lambda: list((project / ".flowrun").glob("state/*/chk-*")), process)
        process.send_signal(signal.SIGINT)
        output, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "after the job" not in output
    assert "resume with:" in said


@pytest.mark.parametrize(
    ("program", "arguments", "problem"),
    [
        ("1 / 0\n", (), "job.py:1: the program failed: ZeroDivisionError: division by zero"),
        ("x = (\n", (), "job.py:1: the program failed: SyntaxError"),
        ("print('no job')\n", (), "the program ended without running a job"),
        (PROGRAM, ("--set", "settings.paralelism=2"), "paralelism"),
        (PROGRAM, ("--set", "settings.parallelism=none"), "--set:1:"),
        (PROGRAM, ("--set", "settings.time_zone=UTC"), "the setting 'time_zone' says nothing to a program"),
        (PROGRAM, ("--set", "sources.numbers.path=x"), "a program has no 'sources.numbers.path'"),
        (PROGRAM, ("--mode", "batch"), "--mode cannot be given to a program"),
    ],
)
def test_what_is_wrong_with_a_program(
    project: Path, flowrun: Command, program: str, arguments: tuple[str, ...], problem: str
) -> None:
    (project / "job.py").write_text(program)
    done = flowrun("run", "job.py", *arguments)
    assert (done.code, "Traceback" in done.err) == (2, False)
    assert problem in done.err


def test_a_failing_job_and_a_failure_behind_a_job(project: Path, flowrun: Command) -> None:
    (project / "helpers.py").write_text("LEAST = 'none'\n")
    done = flowrun("run", "job.py")
    assert done.code == 1
    assert f"job.py:{line_of('helpers.LEAST')}" in done.err
    del sys.modules["helpers"]
    (project / "helpers.py").write_text("LEAST = 0\n")
    (project / "job.py").write_text(PROGRAM + "    1 / 0\n")
    done = flowrun("run", "job.py")
    assert done.code == 1
    assert f"job.py:{len(PROGRAM.splitlines()) + 1}: the program failed: ZeroDivisionError" in done.err
    assert written(project) == expected(10)


SIZES = """\
import pyarrow as pa
from flowrun.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment("sizes")
rows = env.from_connector("datagen", "k BIGINT", {"number-of-rows": "1000", "rows-per-second": "1000000"})
sizes = rows.flat_map(lambda batch: pa.record_batch({"n": [batch.num_rows]}), "n BIGINT", batches=True)
sizes.to_connector("filesystem", {"path": "sizes"}, format="json")
env.execute()
"""


def test_the_batch_size_of_the_command_line_is_that_of_the_sources(project: Path, flowrun: Command) -> None:
    (project / "sizes.py").write_text(SIZES)
    done = flowrun("run", "sizes.py", "--set", "settings.batch_rows=100", "-q")
    assert done.code == 0, done.err
    sizes = [row["n"] for row in json_rows(project / "sizes")]
    assert max(sizes) <= 100
    assert sum(sizes) == 1000
