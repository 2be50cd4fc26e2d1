"""How `flowrun diff` and `history` say what they found; no job runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flowrun.cli.versions.history import without_secrets
from flowrun.runners.versions.history import VersionHistory
from flowrun.runners.versions.records import Outcome, PipelineVersion
from flowrun.state.checkpoints import PipelineText
from flowrun.state.storage.state_path import resolve
from tests.end_to_end.conftest import Command
from tests.rest.control_fakes import FakeJob, controlled

SQL = """\
CREATE TABLE ids (id BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '10');
CREATE TABLE out (id BIGINT) WITH ('connector' = 'print');
INSERT INTO out SELECT id FROM ids WHERE id > 1;
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.sql").write_text(SQL)
    (tmp_path / "same.sql").write_text("-- the same\n" + SQL.replace(" FROM ids", "\n  FROM ids"))
    (tmp_path / "new.sql").write_text(SQL.replace("id > 1", "id > 2"))
    return tmp_path


def test_two_files(flowrun: Command, files: Path) -> None:
    same = flowrun("diff", "old.sql", "same.sql")
    assert (same.code, same.out) == (0, "old.sql and same.sql mean the same\n")
    found = flowrun("diff", "old.sql", "new.sql")
    assert found.code == 1
    assert found.out.startswith("- old.sql\n+ new.sql\nwhat is computed:\n")
    assert "where: (id > 1) -> (id > 2)" in found.out
    assert "state, if there is some:" in found.out
    assert "warning" not in found.out, "files are called differently: that is no matter of state"
    shown = json.loads(flowrun("diff", "old.sql", "new.sql", "--format", "json").out)
    assert shown["differ"]
    (difference,) = shown["differences"]
    assert (difference["kind"], difference["part"], difference["effect"]) == ("changed", "step", "rows")
    assert difference["fields"] == [{"name": "where", "before": "(id > 1)", "after": "(id > 2)"}]
    assert shown["state"]["can_resume"]


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("nowhere.sql", "nowhere.sql"),
        ("orders", "no versions of 'orders' are kept"),
        ("orders@x", "'orders@x' names no version"),
        ("orders@3", "no versions of 'orders' are kept"),
    ],
)
def test_what_is_not_there(flowrun: Command, files: Path, named: str, message: str) -> None:
    found = flowrun("diff", "old.sql", named)
    assert found.code == 2
    assert message in found.err


def test_history_of_a_job_that_does_not_run(flowrun: Command, files: Path) -> None:
    history = VersionHistory(resolve(str(files / "state" / "old")))
    text = PipelineText("old.sql", "'password' = 'hunter2', 'url' = 'jdbc:postgresql://ada:s3cr3t@h/x'\n", str(files))
    history.add(PipelineVersion(0, text, "a=1", 1_000, {"name": "old", "nodes": []}))
    history.add(
        PipelineVersion(
            0, text, "a=2", 2_000, None, outcome=Outcome.REJECTED, reason="it\x1b[31m failed\n  at its third line"
        )
    )
    shown = flowrun("history", "old", "--state", "state")
    assert shown.code == 0, shown.err
    assert [line.split()[0] for line in shown.out.splitlines()] == ["VERSION", "1", "2"]
    assert "1970-01-01 00:00:01Z" in shown.out
    assert "\x1b" not in shown.out
    assert "third line" not in shown.out, "one line is one version"
    printed = flowrun("history", "old", "--state", "state", "--text", "1").out
    assert ("hunter2" in printed, "s3cr3t" in printed, "'password' = ***" in printed) == (False, False, True)
    assert json.loads(flowrun("history", "old", "--state", "state", "--plan", "1").out)["name"] == "old"
    listed = json.loads(flowrun("history", "old.sql", "--state", "state", "--json").out)
    assert [v["outcome"] for v in listed] == ["ran", "rejected"]
    none = flowrun("history", "old", "--state", "state", "--text", "9")
    assert (none.code, "there is no version 9" in none.err) == (2, True)


@pytest.mark.parametrize(
    "text",
    [
        "'password' = 'hunter2'",
        "password: hunter2",
        'password: "hunter2"',
        "'ssl.keystore.password'='hunter2')",
        "token: hunter2",
        "url: https://ada:hunter2@host/x",
        "'bearer-auth.token' = 'hun''hunter2'",
    ],
)
def test_secrets_in_texts_are_masked(text: str) -> None:
    assert "hunter2" not in without_secrets(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("apply",), "name the pipeline's FILE"),
        (("apply", "--to", "orders"), "or a version of the history with --version"),
        (("apply", "old.sql", "--version", "2"), "give FILE or --version, not both"),
        (("apply", "old.sql", "--healthy-for", "1m"), "--healthy-for is less than --healthy-within"),
        (("apply", "nowhere.sql"), "nowhere.sql"),
        (("apply", "job.py"), "is a program: only pipelines"),
        (("apply", "old.sql", "--yes"), "no job of yours runs on this machine"),
        (("apply", "old.sql", "--continue"), "there is no apply of 'old' to go on with in '"),
        (("apply", "--to", "old", "--continue"), "'old' does not run: name its FILE, which says where its state is"),
    ],
)
def test_apply_says_what_is_wrong(flowrun: Command, files: Path, arguments: tuple[str, ...], message: str) -> None:
    outcome = flowrun(*arguments)
    assert (outcome.code, message in outcome.err) == (2, True), outcome.err


def test_a_job_whose_process_cannot_start_another_version_is_left_alone(
    flowrun: Command, files: Path, own_registry: Path
) -> None:
    with controlled(job := FakeJob("aaaa1111" * 4), own_registry, name="orders"):
        refused = flowrun("apply", "new.sql", "--to", "orders", "--yes")
    assert refused.code == 2
    assert "no other version can take its place" in refused.err
    assert "flowrun stop --savepoint" in refused.err
    assert job.asked == []
