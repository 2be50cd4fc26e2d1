"""Errors that go from one process to another: nothing that they know is lost on the way."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator

import pytest

from flowrun import errors
from flowrun.errors import Diagnostic, FlowrunError, Location
from flowrun.frontend.sql.spans import SeveralErrors
from flowrun.masking import forget_secrets, learn_secret

PLACE = Location("p.yaml", 3, 7, 2)
EXAMPLES = [
    FlowrunError("all", hint="h"),
    errors.PipelineError([Diagnostic("first", PLACE, "a: b", "h"), Diagnostic("second")]),
    errors.OptionError("sink.mode", "wrong", hint="h"),
    errors.ExpressionError("no column", offset=4, length=2, hint="h"),
    SeveralErrors([errors.ExpressionError("one", offset=1), errors.ExpressionError("two", offset=2)]),
    errors.UnsupportedPlanError("not here", hint="h"),
    errors.SetupError("no Java", hint="h"),
    errors.ConnectorError("gone", retryable=True, hint="h"),
    errors.DataError("row", row=3, hint="h"),
    errors.StateError("damaged", hint="h"),
    errors.ClusterError("unknown", hint="h"),
    errors.RefusedError("another version", hint="h"),
    errors.RpcError("no value", hint="h"),
    errors.ConnectionOverError("over", hint="h"),
    errors.FencingError("stale", hint="h"),
    errors.PartitionLostError("gone", data_set_id="d", subtask=1, hint="h"),
    errors.NoResourceAvailableError("no slots", hint="h"),
    errors.NeverEnoughSlotsError("too few slots", hint="h"),
    errors.JobFailedError("failed", operator="o", subtask=2, hint="h"),
    errors.JobCancelledError("cancelled"),
    errors.ForeignError("text", "mine.Error"),
    errors.InternalError("bug", hint="h"),
]


def sent(error: BaseException) -> BaseException:
    received = pickle.loads(pickle.dumps(error))
    assert isinstance(received, BaseException)
    return received


def test_every_kind_has_an_example() -> None:
    kinds = {k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, FlowrunError)}
    assert kinds <= {type(e) for e in EXAMPLES}


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda e: type(e).__name__)
def test_everything_that_an_error_knows_arrives(error: FlowrunError) -> None:
    error.add_note("a note")
    received = sent(error)
    assert type(received) is type(error)
    assert str(received) == str(error)
    assert received.args == error.args
    assert str(vars(received)) == str(vars(error))


class Odd(Exception):
    """Its constructor takes other arguments than those that it hands on."""

    def __init__(self, left: int, *, right: int) -> None:
        super().__init__(f"{left} beside {right}")


def test_causes_arrive_in_their_order() -> None:
    root = OSError(2, "No such file", "x.csv")
    root.add_note("while reading")
    middle = errors.DataError("row 3", row=3)
    middle.__cause__ = root
    top = errors.JobFailedError("failed", operator="map")
    top.__cause__ = middle
    received = sent(top)
    assert isinstance(received.__cause__, errors.DataError)
    assert received.__cause__.row == 3
    last = received.__cause__.__cause__
    assert isinstance(last, FileNotFoundError)
    assert (last.errno, last.filename, last.__notes__) == (2, "x.csv", ["while reading"])
    assert last.__cause__ is None


def test_a_cause_whose_constructor_takes_other_arguments_arrives() -> None:
    top = errors.JobFailedError("failed")
    top.__cause__ = Odd(1, right=2)
    received = sent(top)
    assert str(received.__cause__) == "1 beside 2"


def test_a_cause_that_only_this_process_knows_is_told_by_name() -> None:
    class Local(Exception):
        pass

    top = errors.JobFailedError("failed")
    top.__cause__ = Local("lost")
    top.__cause__.__cause__ = ValueError("why")
    received = sent(top)
    assert isinstance(received.__cause__, errors.ForeignError)
    assert str(received.__cause__).endswith("Local: lost")
    assert isinstance(received.__cause__.__cause__, ValueError)


def test_causes_in_a_circle_end() -> None:
    first, second = errors.DataError("a"), errors.DataError("b")
    first.__cause__, second.__cause__ = second, first
    assert str(sent(first).__cause__) == "b"


def test_another_process_reads_it() -> None:
    program = (
        "import pickle, sys; e = pickle.load(sys.stdin.buffer); print(type(e).__name__, e.diagnostics[0].location)"
    )
    told = pickle.dumps(errors.PipelineError.of("wrong", "h", PLACE))
    ended = subprocess.run([sys.executable, "-c", program], input=told, capture_output=True, check=True)
    assert ended.stdout.decode().split() == ["PipelineError", "p.yaml:3:7"]


@pytest.fixture
def secret() -> Iterator[str]:
    learn_secret("correct horse battery")
    yield "correct horse battery"
    forget_secrets()


def marked(line: str, column: int, length: int = 1) -> list[str]:
    """The line of a problem as it is shown, and what is marked of it."""
    _, shown, mark = Diagnostic("wrong", Location("p.sql", 1, column, length), line).render().splitlines()
    return [shown.strip(), shown[mark.index("^") : mark.rindex("^") + 1]]


@pytest.mark.parametrize("before", range(120, 220, 7))
def test_no_part_of_a_secret_is_shown_where_a_long_line_is_cut(secret: str, before: int) -> None:
    head, tail = "x" * before, "y" * before
    for line, at in ((f"{head}'{secret}'{'y' * 200}", 0), (f"{'x' * 200}'{secret}'{tail}Z", -1)):
        shown, mark = marked(line, at % len(line) + 1)
        assert mark == line[at]
        assert not [part for part in ("co", "orrect", "horse", "battery", "ry'") if part in shown]


def test_what_is_marked_stays_marked_behind_a_secret(secret: str) -> None:
    line = f"'password' = '{secret}', 'port' = 'x'"
    assert marked(line, line.index("'port'") + 1, 6) == ["'password' = '***', 'port' = 'x'", "'port'"]
    assert marked(line, line.index(secret), len(secret) + 2) == ["'password' = '***', 'port' = 'x'", "'***'"]
    assert marked(line, line.index("horse") + 1, 3)[0] == "'password' = '***', 'port' = 'x'"


def test_of_a_long_line_no_blanks_are_shown_before_the_place() -> None:
    """A shell has blanks in the place of the statements before the one that is wrong."""
    line = " " * 400 + "SELECT nope FROM orders"
    shown = Diagnostic("no column", Location("stdin.sql", 1, 408, 4), line).render().splitlines()
    assert shown[1:] == ["    … SELECT nope FROM orders", "             ^^^^"]


SQL_LINE = "CREATE TABLE a (id {type}) WITH ('connector'='jdbc', {pair}, 'x'='y');"


@pytest.mark.parametrize(
    "pair",
    [
        "'password'='hunter2hunter'",
        "'properties.sasl.jaas.config' = 'x ''hunter2hunter''; y'",
        "'bearer-token'='hunter2hunter'",
        "'password'=hunter2hunter",
        "'password'='hunter2hunter",
        "password: hunter2hunter",
        "{user: u, ssl.keystore.key: 'hunter2hunter', z: 1}",
        'properties.sasl.password: "hunter2hunter: x',
        "s3.secret-key: [hunter2hunter]",
        "    password: x,hunter2hunter}",
    ],
)
def test_what_is_named_as_a_secret_is_not_shown_before_anybody_has_read_the_text(pair: str) -> None:
    line = SQL_LINE.format(type="NOPE", pair=pair)
    shown, mark = marked(line, line.index("NOPE") + 1, 4)
    assert "hunter" not in shown
    assert mark == "NOPE"
    assert "hunter" not in marked(pair, 1)[0]


def test_a_problem_with_a_secret_does_not_tell_it() -> None:
    line = SQL_LINE.format(type="INT", pair="'password'=hunter2hunter")
    at = Location("p.sql", 1, line.index("hunter") + 1, len("hunter2hunter"))
    shown = Diagnostic("expected a text, got 'hunter2hunter'", at, line, "write 'hunter2hunter'").render()
    assert "hunter" not in shown
    assert "expected a text, got '***'" in shown


@pytest.mark.parametrize(
    "line",
    [
        "schema: {id: BIGINT, amount: STRING}",
        "schema: {password: STRING, token: TIMESTAMP_LTZ(3)}",
        "'key.format' = 'json', 'format' = 'csv'",
        "password: ${secret:env:SHOP}, 'password' = '${secret:SHOP}'",
        "SELECT password, token FROM users WHERE name = 'x'",
    ],
)
def test_what_is_no_secret_is_shown(line: str) -> None:
    assert marked(line, 1)[0] == line
