"""Secrets leave the process nowhere: not in answers, errors, logs, plans, reports and state."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from flowrun.masking import forget_secrets, learn_secret, masked, masked_json
from flowrun.spark.session import SparkOptions
from tests.end_to_end.conftest import Command

SECRET = "hunter2-pw"
PIPELINE = """\
name: job
settings: {checkpoint: {interval: 1h, dir: state}}
sources:
  rows: {connector: datagen, number-of-rows: 3, schema: {id: BIGINT}, fields: {id: {kind: sequence, start: 0, end: 2}}}
steps:
  named: {from: rows, select: [id, "CONCAT('${PW}', CAST(id AS STRING)) AS text"]}
  checked: {from: named, filter: "CONDITION"}
sinks:
  out: {from: checked, connector: filesystem, path: out, format: json}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("good.yaml").write_text(PIPELINE.replace("CONDITION", "text <> ''"))
    Path("bad.yaml").write_text(PIPELINE.replace("CONDITION", "CAST(text AS INT) > 0"))
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        ["run", "bad.yaml", "--log-level", "debug", "--report", "report.json"],
        ["validate", "good.yaml"],
        ["validate", "bad.yaml", "--format", "json"],
        ["validate", "good.yaml", "--set", "sinks.out.format=${PW}"],
        *(
            ["explain", "good.yaml", "--stage", s, "--format", f]
            for s, f in [("plan", "text"), ("plan", "json"), ("plan", "mermaid"), ("job", "json")]
        ),
    ],
    ids=" ".join,
)
def test_no_command_shows_a_secret_variable(flowrun: Command, project: Path, command: list[str]) -> None:
    done = flowrun(*command, "--secret-var", f"PW={SECRET}")
    assert SECRET not in done.out + done.err
    assert "***" in done.out + done.err or command[0] == "validate" or "job" in command
    assert all(SECRET not in p.read_text() for p in project.glob("report.json"))


def test_a_secret_variable_may_come_from_the_environment(
    flowrun: Command, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert flowrun("validate", "good.yaml", "--secret-var", "PW").code == 2
    monkeypatch.setenv("PW", SECRET)
    assert flowrun("run", "good.yaml", "--secret-var", "PW").code == 0
    assert SECRET in "".join(p.read_text() for p in Path("out").glob("*.json")), "data is the user's own"


def test_state_keeps_no_secret_and_resuming_asks_for_it_by_name(flowrun: Command, project: Path) -> None:
    assert flowrun("run", "good.yaml", "--secret-var", f"PW={SECRET}").code == 0
    kept = list(Path("state").rglob("_metadata.json"))
    assert kept
    assert all(SECRET not in p.read_text() for p in Path("state").rglob("*") if p.suffix in (".json", ".sql"))
    again = flowrun("run", "good.yaml", "--secret-var", f"PW={SECRET}")
    assert "--secret-var PW=…" in again.err.splitlines()[0], "of the earlier run"
    shown = flowrun("state", "show", "state")
    assert shown.code == 0
    assert SECRET not in shown.out
    refused = flowrun("resume", "--from-savepoint", "state")
    assert refused.code == 2
    assert "'PW' was not kept with the state, as its value is secret" in refused.err
    assert flowrun("resume", "--from-savepoint", "state", "--secret-var", f"PW={SECRET}").code == 0


def test_passwords_in_uris_are_masked(flowrun: Command, project: Path) -> None:
    uri = "nowhere://key:s3cr3t-key@bucket/in?secret_key=t0ken-value"
    done = flowrun("run", "good.yaml", "--var", "PW=x", "--set", f"sinks.out.path={uri}")
    assert done.code != 0
    assert "nowhere://key:***@bucket/in?secret_key=***" in done.err


def test_other_writings_of_a_secret_are_masked_and_short_ones_only_alone() -> None:
    learn_secret('a"b\nlong line of a key')
    assert masked(json.dumps({"k": 'a"b\nlong line of a key'})) == '{"k": "***"}'
    assert masked("long line of a key") == "***"
    assert masked('a"b') == 'a"b'
    learn_secret("ab")
    assert (masked("ab abc 'ab'"), masked("cab")) == ("*** abc '***'", "cab")
    assert masked_json({"x": ["ab", 5]}) == {"x": ["***", 5]}


def test_settings_of_spark_that_hold_secrets_are_masked() -> None:
    from flowrun.cli.spark_arguments import SparkArguments

    options = SparkArguments(None, None, ("spark.hadoop.fs.s3a.secret.key=abcd1234",)).options("error")
    assert isinstance(options, SparkOptions)
    assert masked("secret.key=abcd1234") == "secret.key=***"


def test_logs_are_masked(flowrun: Command, project: Path, caplog: pytest.LogCaptureFixture) -> None:
    learn_secret(SECRET)
    logging.getLogger("flowrun").warning("it says %s", SECRET)
    done = flowrun("run", "good.yaml", "--var", f"PW={SECRET}", "--log-level", "debug")
    assert SECRET not in done.err


@pytest.mark.parametrize("name", ["kafka_to_postgres.sql", "kafka_to_postgres.yaml"])
def test_secrets_of_examples_are_no_words_of_ordinary_texts(flowrun: Command, name: str) -> None:
    done = flowrun("validate", Path(__file__).parents[2] / "pipelines" / name)
    assert done.code == 0, done.err
    ordinary = f"flowrun resume {name} --from-savepoint saved: the user flowrun has no such password"
    assert masked(ordinary) == ordinary
    assert masked("a-password-of-your-own") == "***"


@pytest.mark.parametrize(
    "option",
    [
        "properties.sasl.passwrod",
        "properties.sasl.oauthbearer.token.passphrase",
        "sasl.password",
        "properties.client.secret",
    ],
)
@pytest.mark.parametrize("connector", ["kafka", "kafak"])
def test_secrets_of_options_that_nobody_knows_are_not_shown(
    flowrun: Command, tmp_path: Path, connector: str, option: str
) -> None:
    options = {"connector": connector, "topic": "t", "properties.bootstrap.servers": "b:1", "format": "json"}
    given = {**options, "scan.startup.mode": "earliest-offset", option: "a-word-of-its-own"}
    table = ", ".join(f"'{k}' = '{v}'" for k, v in given.items())
    script = tmp_path / "s.sql"
    script.write_text(f"CREATE TABLE t (a INT) WITH ({table});\nSELECT a FROM t;")
    document = tmp_path / "s.yaml"
    source = ", ".join(f"{k}: {v}" for k, v in given.items())
    document.write_text(
        f"sources: {{t: {{{source}, schema: {{a: INT}}}}}}\nsinks: {{out: {{from: t, connector: print}}}}\n"
    )
    for file in (script, document):
        for command in ("explain", "validate"):
            done = flowrun(command, file)
            assert "a-word-of-its-own" not in done.out + done.err
            forget_secrets()
