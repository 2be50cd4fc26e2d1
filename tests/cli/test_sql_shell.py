"""The SQL shell: statements keep what they declare, run once, and are read from keys or from a file."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import select
import subprocess
import sys
import termios
import time
from contextlib import closing
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from flowrun.cli.main import main
from flowrun.cli.sql.completion import SqlCompleter
from flowrun.cli.sql.prompt import StatementPrompt, history_file
from flowrun.errors import PipelineError
from flowrun.runners.sql_session import SqlSession, cut
from tests.frontend.sql.script.shop_catalog import shop_catalogs

ORDERS = """CREATE TABLE orders (order_id BIGINT, `user id` STRING, amount DOUBLE)
WITH ('connector' = 'filesystem', 'path' = 'orders.json', 'format' = 'json')"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("orders.json").write_text('{"order_id": 1, "user id": "a", "amount": 5}\n{"order_id": 2, "amount": 7}\n')
    return tmp_path


@pytest.fixture
def session() -> SqlSession:
    made = SqlSession({}, {})
    made.compile(ORDERS)
    return made


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("", (), ""),
        (" -- nothing\n", (), ""),
        ("SELECT 1", (), "SELECT 1"),
        ("SELECT 1;", ("SELECT 1",), ""),
        ("SELECT ';' ; ;; SHOW TABLES ; -- end", ("SELECT ';'", "SHOW TABLES"), ""),
        ("SELECT 'a", (), "SELECT 'a"),
        ("SHOW TABLES; SELECT /* 1;", ("SHOW TABLES",), "SELECT /* 1;"),
        (
            "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT 2; END; SHOW TABLES;",
            ("EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT 2; END", "SHOW TABLES"),
            "",
        ),
        (
            "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1;",
            (),
            "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1;",
        ),
    ],
)
def test_text_is_cut_at_semicolons(text: str, statements: tuple[str, ...], rest: str) -> None:
    assert (cut(text).statements, cut(text).rest) == (statements, rest)


def test_what_is_declared_stays_and_what_ran_does_not_run_again(session: SqlSession) -> None:
    session.compile("CREATE VIEW large AS SELECT * FROM orders WHERE amount > 5")
    assert list(session.tables) == ["orders", "large"]
    first = session.compile("SELECT * FROM large")
    second = session.compile("SELECT order_id FROM orders")
    assert (len(first.plan.sinks), len(second.plan.sinks)) == (1, 1)
    session.compile("DROP VIEW large")
    assert list(session.tables) == ["orders"]
    with pytest.raises(PipelineError, match="table 'large' does not exist"):
        session.compile("SELECT * FROM large")


def test_settings_stay_until_they_are_reset(session: SqlSession) -> None:
    session.compile("SET 'parallelism.default' = '3'")
    assert session.compile("SELECT * FROM orders").plan.settings.parallelism == 3
    assert "parallelism.default" in session.compile("SET").outputs[0]
    session.compile("RESET 'parallelism.default'")
    assert session.compile("SELECT * FROM orders").plan.settings.parallelism == 1


def test_a_table_made_of_a_query_is_known_and_written_once(session: SqlSession) -> None:
    made = "CREATE TABLE copied WITH ('connector' = 'filesystem', 'path' = 'copied', 'format' = 'json') AS SELECT order_id FROM orders"
    assert len(session.compile(made).plan.sinks) == 1
    Path("copied").mkdir()  # the job would have made it
    assert session.tables["copied"].names == ("order_id",)
    assert len(session.compile("SELECT * FROM copied").plan.sinks) == 1


def test_places_are_those_in_the_statement(session: SqlSession) -> None:
    with pytest.raises(PipelineError) as caught:
        session.compile("SELECT order_id,\n  amont FROM orders")
    [problem] = caught.value.diagnostics
    assert str(problem.location) == "statement:2:3"
    assert problem.source_line == "  amont FROM orders"
    assert "amount" in str(problem.hint)


def test_a_wrong_declaration_is_not_kept(session: SqlSession) -> None:
    with pytest.raises(PipelineError):
        session.compile("CREATE TABLE bad (n NUMBR) WITH ('connector' = 'datagen')")
    assert len(session.compile("SELECT * FROM orders").plan.sinks) == 1


def proposed(session: SqlSession, text: str) -> list[str]:
    before, _, after = text.partition("|")
    document = Document(before + after, len(before))
    with closing(SqlCompleter(session)) as completer:
        return [c.text for c in completer.get_completions(document, CompleteEvent(completion_requested=True))]


@pytest.mark.parametrize(
    ("text", "some"),
    [
        ("SELECT * FROM o|", ["orders"]),
        ("SELECT am| FROM orders", ["amount"]),
        ("SELECT o.us| FROM orders o", ["`user id`"]),
        ("SELECT x.us| FROM orders o", []),
        ("SELECT orders.us| FROM orders", ["`user id`"]),
        ("SELECT `us| FROM orders", ["`user id`"]),
        ("sel|", ["SELECT"]),
        ("SELECT reg|", ["REGEXP(", "REGEXP_REPLACE("]),
        ("CREATE TABLE t (n INT) WITH ('connector' = 'kaf|", ["kafka"]),
        ("CREATE TABLE t (n INT) WITH ('connector' = 'kafka', 'scan.st|", ["scan.startup.mode"]),
        ("CREATE TABLE t (n INT) WITH ('conn|", ["connector"]),
        ("CREATE TABLE t (n INT) WITH ('connector' = 'nothing', 'scan|", []),
        ("CREATE TABLE t (n INT, o BIGINT METADATA FROM 'o|') WITH ('connector' = 'kafka')", ["offset"]),
        ("CREATE TABLE t (n INT, o BIGINT METADATA FROM 'o|') WITH ('connector' = 'nothing')", []),
        ("SELECT 'fro|", []),
        ("SELECT 'it''s', am| FROM orders", ["amount"]),
        ("-- don't\nSELECT am| FROM orders", ["amount"]),
        ("/* it's; */ SELECT ';', am| FROM orders", ["amount"]),
        ("SHOW TABLES; SELECT am| -- ; of\nFROM orders", ["amount"]),
        ("SELECT amount FROM orders -- am|", []),
        ("SELECT amount /* am| */ FROM orders", []),
        ("SELECT '-- ', am| FROM orders", ["amount"]),
        ("CREATE TABLE t (n INT) WITH ('connector' = 'kaf|)", ["kafka"]),
    ],
)
def test_words_that_may_come_next(session: SqlSession, text: str, some: list[str]) -> None:
    found = proposed(session, text)
    assert set(some) <= set(found)
    if not some:
        assert found == []


def test_names_of_catalogs_are_proposed_and_asked_for_only_then(
    monkeypatch: pytest.MonkeyPatch, session: SqlSession
) -> None:
    with shop_catalogs(monkeypatch) as asked:
        session.compile("CREATE CATALOG c WITH ('type' = 'shop')")
        assert proposed(session, "SELECT * FROM |") == ["orders", "c", "default_catalog"]
        assert set(asked) == {"close"}
        assert proposed(session, "SELECT * FROM c.shop.|")[0] == "orders"
        assert proposed(session, "SELECT o.pr| FROM c.shop.orders AS o") == ["price"]
        session.compile("CREATE CATALOG down WITH ('type' = 'shop', 'state' = 'down')")
        assert proposed(session, "SELECT * FROM down.|") == []


def test_enter_ends_a_statement_behind_its_semicolon_only(session: SqlSession) -> None:
    with create_pipe_input() as keys:
        keys.send_text("SELECT 1\r+ 1;\rSELECT 'no\x03SHOW TABLES;SHOW VIEWS;\r\rquit\r")
        prompt = StatementPrompt(SqlCompleter(session), InMemoryHistory(), keys, DummyOutput())
        assert list(prompt.statements()) == ["SELECT 1\n+ 1", "SHOW TABLES", "SHOW VIEWS"]


def test_the_end_of_input_ends_the_session(session: SqlSession) -> None:
    with create_pipe_input() as keys:
        keys.send_text("SHOW TABLES;\r\x04")
        prompt = StatementPrompt(SqlCompleter(session), InMemoryHistory(), keys, DummyOutput())
        assert list(prompt.statements()) == ["SHOW TABLES"]


def test_the_history_is_the_users_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = history_file()
    assert path is not None
    assert path.stat().st_mode & 0o777 == 0o600


def typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str | bytes, *words: str
) -> tuple[int, str, str]:
    data = io.BytesIO(text if isinstance(text, bytes) else text.encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(data))
    monkeypatch.setattr(sys, "argv", ["flowrun", "sql", *words])
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def test_standard_input_runs_to_its_first_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"{ORDERS};\nSELECT order_id FROM orders;\nSELECT nothing FROM orders;\nSELECT amount FROM orders;"
    code, out, err = typed(monkeypatch, capsys, text, "--format", "json")
    assert code == 2
    assert [json.loads(line) for line in out.splitlines()] == [{"order_id": 1}, {"order_id": 2}]
    assert "stdin.sql:4:8: error: column 'nothing' does not exist" in err


def test_a_script_is_known_and_does_not_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = "CREATE TABLE o (n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json')"
    Path("job.sql").write_text(f"{ORDERS};\n{sink};\nINSERT INTO o SELECT order_id FROM orders;\n")
    code, out, err = typed(monkeypatch, capsys, "SHOW TABLES", "--init", "job.sql")
    assert code == 0, err
    assert "orders" in out
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("CREATE TABLE t (n INT) WITH ('connector' = 'datagen'); SELEC 1", "bad.sql:1:56: error: expected a statement"),
        ("-- one\n\nCREATE TABLE t (n NUMBR)\nWITH ('connector' = 'datagen')", "bad.sql:3:19: error: unknown type"),
    ],
)
def test_what_is_wrong_in_a_script_is_told_with_its_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    Path("bad.sql").write_text(text)
    code, _, err = typed(monkeypatch, capsys, "", "--init", "bad.sql")
    assert code == 2
    assert said in err
    assert "^" in err


def test_bytes_that_are_no_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = typed(monkeypatch, capsys, b"SELECT '\xff'")
    assert code == 2
    assert "standard input is no UTF-8 text: byte 8" in err


def test_a_script_that_is_not_there(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = typed(monkeypatch, capsys, "", "--init", "none.sql")
    assert code == 2
    assert "cannot read 'none.sql'" in err


@pytest.mark.exhaustive
def test_a_terminal(folder: Path) -> None:
    """Real keys: a query that goes on is ended by Ctrl-C, and the session goes on."""
    control, terminal = pty.openpty()
    environment = {**os.environ, "XDG_STATE_HOME": str(folder), "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    process = subprocess.Popen(
        [sys.executable, "-m", "flowrun", "sql"], stdin=terminal, stdout=terminal, stderr=terminal, env=environment, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - so that Ctrl-C is a signal
    )  # fmt: skip
    os.close(terminal)
    seen = ""

    def until(text: str) -> None:
        nonlocal seen
        deadline = time.monotonic() + 60
        while text not in seen:
            assert time.monotonic() < deadline, seen[-3000:]
            if select.select([control], [], [], 1)[0]:
                data = os.read(control, 65_536)
                if b"\x1b[6n" in data:
                    os.write(control, b"\x1b[1;1R")  # where the cursor is
                seen += data.decode(errors="replace")
        seen = seen.partition(text)[2]

    def send(text: str) -> None:
        os.write(control, text.encode())

    try:
        until("quit ends")
        send("CREATE TABLE t (n INT) WITH ('connector' = 'datagen', 'rows-per-second' = '10');\r")
        send("SELECT COUNT(*) AS counted FROM t;\r")
        until("counted")
        until("running")
        send("\x03")
        until("flowrun")
        send("SELECT 41 + 1 AS answer;\r")
        until("42")
        send("quit\r")
        assert process.wait(30) == 0
        assert "answer" in (folder / "flowrun" / "sql_history").read_text()
    finally:
        process.kill()
        process.wait()
        os.close(control)
