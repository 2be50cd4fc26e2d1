"""An error of another process prints and is handled as it would have been there."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowrun.cli.console import report_failure
from flowrun.errors import (
    ClusterError,
    ConnectorError,
    DataError,
    Diagnostic,
    FlowrunError,
    ForeignError,
    InternalError,
    JobCancelledError,
    JobFailedError,
    Location,
    NoResourceAvailableError,
    OptionError,
    PartitionLostError,
    PipelineError,
    RpcError,
    SetupError,
    StateError,
    UnsupportedPlanError,
    is_from_outside,
)
from flowrun.masking import forget_secrets, learn_secret
from flowrun.runtime.error_text import describe_error
from flowrun.runtime.jobmaster.memory_failures import is_out_of_memory
from flowrun.runtime.jobmaster.repeated_failures import RepeatedFailures
from flowrun.runtime.jobmaster.restart import is_retryable
from flowrun.runtime.messages import TaskFailure
from flowrun.runtime.rpc.codec import decode, encode
from flowrun.runtime.rpc.error_values import (
    LONGEST_CHAIN,
    LONGEST_TEXT,
    ErrorLink,
    ErrorValue,
    error_from_value,
    error_to_value,
    told_traceback,
)
from flowrun.state.storage.parquet_read import DamagedFileError


class UsersError(ValueError):
    """Of a user's function."""


class UsersTimeout(TimeoutError):
    """Of a user's library."""


def told(error: BaseException) -> BaseException:
    """The error after it went to another process."""
    back = decode(encode(error, BaseException), BaseException)
    assert isinstance(back, BaseException)
    return back


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """The error as it is caught, with a traceback."""
    try:
        raise error from cause
    except BaseException as caught:
        return caught


OWN = [
    FlowrunError("plain"),
    PipelineError(
        [Diagnostic("no such column", Location("a.sql", 3, 7, 4), "SELECT x", "known: y"), Diagnostic("two")]
    ),
    OptionError("connector.path", "is missing", hint="give it"),
    UnsupportedPlanError("not so"),
    SetupError("no Java"),
    ConnectorError("no answer", retryable=True, hint="try again"),
    DataError("no number", row=3),
    StateError("gone"),
    PartitionLostError("lost", data_set_id="a-b-0", subtask=2),
    ClusterError("unreachable"),
    RpcError("garbled"),
    NoResourceAvailableError("4 slots"),
    JobFailedError("operator 'x' failed", operator="x", subtask=1, hint="look"),
    JobCancelledError("cancelled"),
    InternalError("impossible"),
    ForeignError("of Spark", "org.Spark"),
]
FOREIGN = [
    ValueError("bad"),
    KeyError("k"),
    FileNotFoundError(2, "No such file", "/a/b"),
    UsersError("theirs"),
    UsersTimeout("slow"),
    pa.ArrowInvalid("not castable"),
    pa.ArrowMemoryError("malloc"),
    MemoryError(),
    RuntimeError("can't start new thread"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "odd"),
    ExceptionGroup("several", [ValueError("one")]),
    KeyboardInterrupt(),
    SystemExit(3),
    StopIteration(),
    SyntaxError("invalid", ("f.py", 1, 2, "x y")),
    BrokenPipeError(32, "Broken pipe"),
]


@pytest.mark.parametrize("error", OWN, ids=lambda e: type(e).__name__)
def test_own_errors_come_back_as_themselves(error: FlowrunError) -> None:
    back = told(raised(error, OSError("disk")))
    assert type(back) is type(error)
    assert {k: v for k, v in back.__dict__.items() if k != "told_traceback"} == error.__dict__
    assert isinstance(back.__cause__, OSError)


@pytest.mark.parametrize("error", FOREIGN, ids=lambda e: type(e).__name__)
def test_foreign_errors_keep_name_text_and_what_they_are(error: BaseException) -> None:
    back = told(error)
    assert type(back).__name__ == type(error).__name__
    assert str(back) == str(error)
    for kind in (OSError, ValueError, MemoryError, RuntimeError, TimeoutError, KeyboardInterrupt, Exception):
        assert isinstance(back, kind) == isinstance(error, kind)
    assert type(told(back)) is type(back), "over several processes, too"


@pytest.mark.parametrize("error", [*OWN, *FOREIGN], ids=lambda e: type(e).__name__)
def test_they_are_handled_and_described_as_the_originals(error: BaseException) -> None:
    back = told(error)
    assert describe_error(back) == describe_error(error)
    assert is_from_outside(back) == is_from_outside(error)
    assert is_out_of_memory(back) == is_out_of_memory(error)
    assert is_retryable(TaskFailure(back), restoring=False) == is_retryable(TaskFailure(error), restoring=False)
    failures, again = RepeatedFailures(), RepeatedFailures()
    counts = [failures.add(TaskFailure(error, "map")) for _ in range(2)]
    assert [again.add(TaskFailure(told(error), "map")) for _ in range(2)] == counts


@pytest.mark.parametrize(
    "error", [e for e in [*OWN, *FOREIGN] if not isinstance(e, BrokenPipeError)], ids=lambda e: type(e).__name__
)
def test_the_command_line_says_the_same(error: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    noted = JobFailedError("the job failed", hint="see above")
    noted.add_note("then another one")
    noted.__cause__ = error
    for original in (error, noted):
        code = report_failure(original, show_traceback=False)
        said = capsys.readouterr().err
        assert report_failure(told(original), show_traceback=False) == code
        assert capsys.readouterr().err == said


def test_causes_and_notes_come_along() -> None:
    cause = raised(UsersError("first"), KeyError("zeroth"))
    cause.add_note("a note")
    back = told(raised(DataError("second", row=1), cause))
    assert [type(e).__name__ for e in (back, back.__cause__, back.__cause__.__cause__)] == [  # type: ignore[union-attr]
        "DataError", "UsersError", "KeyError",
    ]  # fmt: skip
    assert back.__cause__ is not None
    assert back.__cause__.__notes__ == ["a note"]


def test_an_error_that_is_its_own_cause_is_told_once_and_long_chains_are_cut() -> None:
    error = ValueError("round")
    error.__cause__ = KeyError("and round")
    error.__cause__.__cause__ = error
    assert len(error_to_value(error).links) == 2
    last: BaseException = ValueError("0")
    for number in range(100):
        following = ValueError(str(number))
        following.__cause__ = last
        last = following
    assert len(error_to_value(last).links) == LONGEST_CHAIN


def test_the_traceback_of_the_other_process_is_shown_when_tracebacks_are(capsys: pytest.CaptureFixture[str]) -> None:
    back = told(raised(UsersError("deep")))
    assert "in raised" in told_traceback(back)
    assert "UsersError: deep" in told_traceback(back)
    outer = raised(JobFailedError("failed"), back)
    report_failure(outer, show_traceback=True)
    assert capsys.readouterr().err.count("in another process:\nTraceback") == 1
    again = told(outer)
    assert told_traceback(again).count("in raised") >= 2, "where each process raised it"


def test_an_error_of_a_subclass_is_one_of_the_nearest_known_class() -> None:
    back = told(DamagedFileError("chk-1/a.parquet", "the state file is truncated"))
    assert type(back) is StateError
    assert str(back) == "the state file is truncated"


def test_secrets_stay_where_they_are() -> None:
    learn_secret("hunter2hunter2")
    try:
        text = "password hunter2hunter2"
        error = raised(ConnectorError(text, hint=text), OSError(5, text))
        error.add_note(text)
        problem = PipelineError([Diagnostic(text, None, text, text)])
        job = JobFailedError(text, operator=text)
        for e in (error, problem, job):
            assert b"hunter2" not in encode(e, BaseException)
            assert b"***" in encode(e, BaseException)
    finally:
        forget_secrets()


def test_texts_are_bounded_and_may_hold_anything() -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise TypeError("no")

    assert str(told(Unspeakable())) == "(its text cannot be made: TypeError)"
    assert str(told(ValueError("odd \udcff name"))) == "odd \\udcff name"
    long = told(ValueError("a" * 10_000_000))
    assert len(str(long)) < LONGEST_TEXT + 100
    assert "characters are left out" in str(long)


def link(**changes: object) -> ErrorValue:
    values: dict[str, object] = {"kind": "a.B", "base": "ValueError", "message": "m", **changes}
    return ErrorValue((ErrorLink(**values),), "")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [
        ErrorValue((), ""),
        link(base="int"),
        link(base="print"),
        link(base="Severity"),
        link(base="near_matches"),
        link(base="ExceptionGroup"),
        link(base="__import__"),
        link(facts={"__class__": "x"}),
        link(facts={"message": "x"}),
        link(facts={"not a name": 1}),
        link(kind="a.B\0"),
    ],
    ids=str,
)
def test_a_value_that_no_error_becomes_is_refused(value: ErrorValue) -> None:
    with pytest.raises(ValueError, match=r"error|attribute|class|null"):
        error_from_value(value)
    with pytest.raises(RpcError, match="no value of BaseException"):
        decode(encode(value, ErrorValue), BaseException)


@given(st.text(max_size=5), st.sampled_from(["ValueError", "StateError", "PipelineError", "OSError", "x"]), st.text(max_size=3),
       st.dictionaries(st.text(max_size=3), st.none() | st.integers() | st.text(max_size=3), max_size=2))  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_random_values_become_errors_or_are_refused(
    kind: str, base: str, message: str, facts: dict[str, int | str | None]
) -> None:
    try:
        back = error_from_value(link(kind=kind, base=base, message=message, facts=facts))
    except ValueError:
        return
    assert isinstance(str(back), str)
    assert error_from_value(error_to_value(back)).args == back.args
