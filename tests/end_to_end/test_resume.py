"""Jobs that are killed, stopped and resumed, in real processes: every id once, every window right, whatever happened between."""

from __future__ import annotations

import json
import shlex
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Command
from tests.end_to_end.processes import checkpoints, newest, started, wait_for
from tests.end_to_end.running import json_rows

ROWS = 60_000
"""At the slow rate they take far longer than any test."""
FAST = ("--set", "sources.rows.rows-per-second=1000000000")
PIPELINE = """\
name: ids
settings:
  checkpoint: {interval: 100ms, dir: state, retain: 2}
sources:
  rows:
    connector: datagen
    number-of-rows: 60000
    rows-per-second: 3000
    schema: {id: BIGINT}
    fields: {id: {kind: sequence, start: 0, end: 59999}}
    computed: {ts: "TO_TIMESTAMP_LTZ(id, 3)"}
    watermark: {column: ts}
    uid: rows
steps:
  counted:
    from: rows
    window: {type: tumbling, size: 1s}
    aggregate: [COUNT(*) AS n, SUM(id) AS total]
    uid: counted
sinks:
  raw: {from: rows, connector: filesystem, path: out/raw, format: json, schema: {id: BIGINT}, uid: raw}
  windows: {from: counted, connector: filesystem, path: out/windows, format: json, uid: windows}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "my project"
    folder.mkdir()
    (folder / "ids.yaml").write_text(PIPELINE)
    monkeypatch.chdir(folder)
    return folder


def assert_exactly_once(project: Path) -> None:
    """Every id once, and every window of the whole input once with the right figures."""
    ids = Counter(int(str(row["id"])) for row in json_rows(project / "out" / "raw"))
    assert ids == Counter(range(ROWS))
    windows = [(row["n"], row["total"]) for row in json_rows(project / "out" / "windows")]
    right = [(1_000, sum(range(start, start + 1_000))) for start in range(0, ROWS, 1_000)]
    assert sorted(windows) == right


def test_killed_and_resumed_until_done(flowrun: Command, project: Path) -> None:
    with started("run", "ids.yaml", cwd=project) as process:
        wait_for(lambda: newest(project) >= 2, process)
        process.kill()
    last = checkpoints(project / "state")[-1]
    with started("resume", "--from-savepoint", "state", cwd=project) as process:
        wait_for(lambda: checkpoints(project / "state")[-1].name > last.name, process)
        process.kill()
    done = flowrun("resume", "--from-savepoint", "state", "-p", "3", *FAST, "--report", "report.json")
    assert done.code == 0, done.err
    assert_exactly_once(project)
    report = json.loads((project / "report.json").read_text())
    assert report["checkpoints"]["completed"] >= 1
    assert {v["parallelism"] for v in report["vertices"]} >= {3}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_takes_a_last_checkpoint_and_prints_the_command_that_goes_on(
    flowrun: Command, project: Path, tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started("run", "ids.yaml", "--set", "settings.checkpoint.interval=1h", cwd=project) as process:
        wait_for(lambda: any((project / "out").rglob("*inprogress*")), process)
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert "stopping: with a last checkpoint" in said
    shown = json_rows(project / "out" / "raw")
    assert shown, "what the last checkpoint covers is shown"
    command = said.splitlines()[-1].strip()
    assert command.startswith("flowrun resume --from-savepoint "), said
    monkeypatch.chdir(tmp_path)  # any terminal will do
    done = flowrun(*shlex.split(command)[1:], *FAST)
    assert done.code == 0, done.err
    assert f"working directory: {project}" in done.err
    assert_exactly_once(project)


def test_a_savepoint_from_another_terminal_an_edited_pipeline_another_parallelism(
    flowrun: Command, project: Path
) -> None:
    with started("run", "ids.yaml", cwd=project) as process:
        wait_for(lambda: checkpoints(project / "state"), process)
        kept = flowrun("savepoint", "ids", "keep")
        assert kept.code == 0, kept.err
        savepoint = Path(kept.out.strip())
        assert savepoint.parent == project / "keep"
        listed = json.loads(flowrun("jobs", "--json").out)
        assert [(j["name"], j["state"], j["pid"]) for j in listed] == [("ids", "running", process.pid)]
        stopped = flowrun("stop", "ids", "--savepoint", "keep")
        assert stopped.code == 0, stopped.err
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert said.splitlines()[-1].strip() == f"flowrun resume --from-savepoint {shlex.quote(stopped.out.strip())}"
    assert flowrun("jobs").out == "no job runs\n"
    assert (savepoint / "_metadata.json").is_file(), "savepoints stay"
    before = {int(str(row["id"])) for row in json_rows(project / "out" / "raw")}

    edited = PIPELINE.replace(
        "steps:\n", "steps:\n  odd: {from: rows, filter: 'MOD(id, 2) = 1'}\n  every: {from: rows, filter: id >= 0}\n"
    )
    edited = edited.replace("from: rows\n    window", "from: every\n    window")
    edited += "  odds: {from: odd, connector: filesystem, path: out/odds, format: json, schema: {id: BIGINT}}\n"
    (project / "edited.yaml").write_text(edited)
    done = flowrun("resume", "--from-savepoint", stopped.out.strip(), "edited.yaml", "-p", "2", *FAST)
    assert done.code == 0, done.err
    assert_exactly_once(project)
    odds = Counter(int(str(row["id"])) for row in json_rows(project / "out" / "odds"))
    assert odds == Counter(i for i in range(ROWS) if i % 2 and i not in before), "the new sink gets what comes now"


def test_cancelled_from_another_terminal(flowrun: Command, project: Path) -> None:
    with started("run", "ids.yaml", cwd=project) as process:
        wait_for(lambda: newest(project) >= 2, process)
        assert flowrun("cancel", "ids").code == 0
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    last = checkpoints(project / "state")[-1]
    assert said.splitlines()[-1].strip() == f"flowrun resume --from-savepoint {shlex.quote(str(last))}"


def test_a_folder_in_use_and_a_fresh_start_beside_older_checkpoints(flowrun: Command, project: Path) -> None:
    with started("run", "ids.yaml", cwd=project) as process:
        wait_for(lambda: checkpoints(project / "state"), process)
        refused = flowrun("run", "ids.yaml")
        assert refused.code == 2
        assert "lock" in refused.err or "in use" in refused.err or "another process" in refused.err, refused.err
        process.kill()
        process.communicate()
    older = checkpoints(project / "state")
    fresh = flowrun(
        "run", "ids.yaml", *FAST, "--set", "sinks.raw.path=other/raw", "--set", "sinks.windows.path=other/w"
    )
    assert fresh.code == 0, fresh.err
    resume = f"flowrun resume --from-savepoint {shlex.quote(str(older[-1]))}"
    assert fresh.err.splitlines()[0] == f"starting afresh; to go on from the checkpoint of an earlier run: {resume}"
    assert all(c.is_dir() for c in older), "a fresh run leaves them alone"
    assert len(json_rows(project / "other" / "raw")) == ROWS


def test_a_job_that_fails_ends_with_the_command_that_goes_on(flowrun: Command, project: Path) -> None:
    (project / "functions.py").write_text(
        "import os, pyarrow.compute as pc\n"
        "def check(batch):\n"
        "    if os.path.exists('broken') and pc.max(batch['id']).as_py() > 0:\n"
        "        raise ValueError('the switch is on')\n"
        "    return batch\n"
    )
    text = PIPELINE.replace("steps:\n", "steps:\n  checked: {from: rows, map: 'functions:check', uid: checked}\n")
    (project / "ids.yaml").write_text(text.replace("raw: {from: rows", "raw: {from: checked"))
    with started("run", "ids.yaml", "--set", "settings.restart.strategy=none", cwd=project) as process:
        wait_for(lambda: newest(project) >= 2, process)
        (project / "broken").touch()
        _, said = process.communicate(timeout=30)
    assert process.returncode == 1, said
    assert "the switch is on" in said
    last = checkpoints(project / "state")[-1]
    assert said.splitlines()[-1].strip() == f"flowrun resume --from-savepoint {shlex.quote(str(last))}"
    (project / "broken").unlink()
    done = flowrun("resume", "--from-savepoint", last, *FAST)
    assert done.code == 0, done.err
    assert_exactly_once(project)


def test_a_restart_strategy_goes_on_in_the_same_process(flowrun: Command, project: Path) -> None:
    (project / "functions.py").write_text(
        "import os, pyarrow.compute as pc\n"
        "def check(batch):\n"
        "    if len(batch) and pc.max(batch['id']).as_py() > 30000 and not os.path.exists('failed'):\n"
        "        open('failed', 'w').close()\n"
        "        raise ValueError('once')\n"
        "    return batch\n"
    )
    text = PIPELINE.replace("steps:\n", "steps:\n  checked: {from: rows, map: 'functions:check', uid: checked}\n")
    text = text.replace("raw: {from: rows", "raw: {from: checked")
    (project / "ids.yaml").write_text(text)
    strategy = ("--set", "settings.restart={strategy: fixed_delay, attempts: 2, delay: 0s}")
    done = flowrun("run", "ids.yaml", *FAST, *strategy, "--set", "settings.batch_rows=1000")
    assert done.code == 0, done.err
    assert "restarts: 1" in done.err
    assert_exactly_once(project)


def test_without_its_last_checkpoint_a_stopped_job_names_the_one_before(flowrun: Command, project: Path) -> None:
    with started("run", "ids.yaml", "--set", "settings.checkpoint.min_pause=1h", cwd=project) as process:
        wait_for(lambda: checkpoints(project / "state"), process)
        (first,) = checkpoints(project / "state")
        # chk-2 is where the next one goes: a file is in the way.
        (first.parent / "chk-2").write_text("in the way")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert "there is no last checkpoint: " in said
    assert said.splitlines()[-1].strip() == f"flowrun resume --from-savepoint {shlex.quote(str(first))}"
    (first.parent / "chk-2").unlink()
    done = flowrun("resume", "--from-savepoint", first, *FAST)
    assert done.code == 0, done.err
    assert_exactly_once(project)


@pytest.mark.parametrize(
    ("path", "message"),
    [("nowhere", "nowhere"), ("ids.yaml", "ids.yaml"), (".", "")],
)
def test_a_path_without_state_is_wrong_input(flowrun: Command, project: Path, path: str, message: str) -> None:
    for command in (("resume", "--from-savepoint", path), ("run", "ids.yaml", "--from-savepoint", path)):
        outcome = flowrun(*command)
        assert outcome.code == 2, outcome.err
        assert message in outcome.err
        assert "Traceback" not in outcome.err
    assert not (project / "out").exists(), "nothing was written"
    assert not (project / "state").exists()


def test_state_that_does_not_fit_is_wrong_input_until_it_may_be_dropped(flowrun: Command, project: Path) -> None:
    with started("run", "ids.yaml", cwd=project) as process:
        wait_for(lambda: checkpoints(project / "state"), process)
        stopped = flowrun("stop", "ids", "--savepoint", "keep")
        assert stopped.code == 0, stopped.err
        process.communicate(timeout=30)
    savepoint = stopped.out.strip()
    without = PIPELINE[: PIPELINE.index("steps:")] + PIPELINE[PIPELINE.index("sinks:") :].partition("  windows:")[0]
    (project / "less.yaml").write_text(without)
    before = sorted((project / "out").rglob("*"))
    refused = flowrun("resume", "--from-savepoint", savepoint, "less.yaml")
    assert refused.code == 2, refused.err
    assert "counted" in refused.err
    assert "--allow-non-restored-state" in refused.err
    assert sorted((project / "out").rglob("*")) == before
    done = flowrun("resume", "--from-savepoint", savepoint, "less.yaml", "--allow-non-restored-state", *FAST)
    assert done.code == 0, done.err
    assert Counter(r["id"] for r in json_rows(project / "out" / "raw")) == Counter(range(ROWS))


def test_a_job_without_checkpoints_gives_savepoints_when_asked(flowrun: Command, project: Path) -> None:
    text = PIPELINE.replace("  checkpoint: {interval: 100ms, dir: state, retain: 2}\n", "  parallelism: 1\n")
    (project / "ids.yaml").write_text(text)
    with started("run", "ids.yaml", cwd=project) as process:
        wait_for(lambda: any((project / "out").rglob("*inprogress*")), process)
        stopped = flowrun("stop", "ids", "--savepoint", "keep")
        assert stopped.code == 0, stopped.err
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    done = flowrun("resume", "--from-savepoint", stopped.out.strip(), *FAST)
    assert done.code == 0, done.err
    assert_exactly_once(project)


@pytest.mark.exhaustive
def test_readers_beside_a_job_that_takes_checkpoints_all_the_time(flowrun: Command, project: Path) -> None:
    often = ("--set", "settings.checkpoint={interval: 10ms, dir: state}")
    with started("run", "ids.yaml", *often, "--set", "sources.rows.rows-per-second=300", cwd=project) as process:
        wait_for(lambda: checkpoints(project / "state"), process)
        for _ in range(4):
            for command in (
                ("list", "state"),
                ("show", "state", "--verify"),
                ("query", "state", "SHOW TABLES"),
                ("diff", "state", "state"),
            ):
                outcome = flowrun("state", *command)
                assert outcome.code == 0, outcome.err
                assert "unreadable" not in outcome.out
            planned = flowrun("plan", "--from-savepoint", "state")
            assert planned.code == 0, planned.err
            refused = flowrun("resume", "--from-savepoint", "state")
            assert (refused.code, "is in use by process" in refused.err) == (2, True), refused.err
        wait_for(lambda: len(checkpoints(project / "state")) <= 2, process)
        process.kill()
    assert not list((project / "state" / "ids" / "_leases").iterdir()), "every reader gives up its lease"
