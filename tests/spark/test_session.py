"""Options of a session, and Spark's failures in flowrun's words."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from flowrun.errors import DataError, FlowrunError, InternalError, JobFailedError, OptionError, SetupError
from flowrun.spark.failures import Fault, explain_fault, is_of_spark, job_failure
from flowrun.spark.session import SEMANTICS, SparkOptions, open_session, spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# --- options ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (SparkOptions(master="lokal"), "'lokal' is no Spark master"),
        (SparkOptions(master="local[0]"), "'local[0]' is no Spark master"),
        (SparkOptions(master="sc://host"), "a Connect URL goes to --spark-remote"),
        (SparkOptions(remote="http://host"), "'http://host' is no Spark Connect URL"),
        (SparkOptions(master="local", remote="sc://host"), "a Connect server has its own master"),
        (SparkOptions(master="local", conf={"spark.master": "yarn"}), "--spark-master says local, --conf says yarn"),
        (
            SparkOptions(conf={"spark.sql.ansi.enabled": "false"}),
            "spark.sql.ansi.enabled cannot be false: overflow, division by zero and bad casts are errors",
        ),
        (SparkOptions(conf={"spark.sql.legacy.timeParserPolicy": "LEGACY"}), "it changes what SQL means"),
    ],
)
def test_wrong_options_are_errors_before_anything_starts(
    options: SparkOptions, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowrun.spark.session._running_context", lambda: None)  # whatever other tests have started
    with pytest.raises(OptionError) as raised:
        open_session(options)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    "options", [SparkOptions(master="spark://127.0.0.1:1"), SparkOptions(remote="sc://127.0.0.1:1")]
)
def test_a_server_that_does_not_answer_is_an_error_at_once(
    options: SparkOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowrun.spark.session._running_context", lambda: None)
    with pytest.raises(SetupError, match=r"answers at s[a-z]*://127\.0\.0\.1:1: Connection refused"):
        open_session(options)


def test_what_says_the_same_is_no_contradiction(spark: SparkSession) -> None:
    session = open_session(
        SparkOptions(conf={"spark.sql.session.timeZone": "utc", "spark.sql.shuffle.partitions": "7"})
    )
    assert {key: session.conf.get(key) for key in SEMANTICS} == dict(SEMANTICS)
    assert session.conf.get("spark.sql.shuffle.partitions") == "7"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3", "other sessions of the process keep theirs"


def test_a_session_of_a_spark_that_runs_leaves_it_running(spark: SparkSession) -> None:
    with spark_session(SparkOptions()) as session:
        assert session.sparkContext is spark.sparkContext
    assert spark.range(3).count() == 3
    with pytest.raises(SetupError, match=r"this process runs Spark on local\[2\], not on yarn"):
        open_session(SparkOptions(master="yarn"))


# --- failures ---------------------------------------------------------------------------------------------------------------------


def said(run: Callable[[], object]) -> str:
    """What a user reads of what Spark raises."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - of many kinds
        run()
    assert is_of_spark(raised.value), raised.value
    failure = job_failure(raised.value, "sink 'out'")
    assert isinstance(failure, JobFailedError)
    assert "\tat " not in str(failure), "no stack of Java"
    return str(failure)


def written(frame: DataFrame) -> Callable[[], object]:
    return lambda: frame.write.format("noop").mode("overwrite").save()


@pytest.mark.parametrize(
    ("expression", "message", "hint"),
    [
        ("100 div (id - 3)", "sink 'out': division by zero, in 100 div (id - 3)", "NULLIF"),
        ("id % (id - 3)", "sink 'out': division by zero, in id % (id - 3)", "NULLIF"),
        ("CAST(concat('a', id) AS INT)", "' is no INT, in CAST(concat('a', id) AS INT)", "TRY_CAST"),
        ("CAST(id + 3000000000 AS INT)", " does not fit into INT", "wider type"),
        (
            "CAST(id AS INT) * 2147483647",
            "the result does not fit into its type, in CAST(id AS INT) * 2147483647",
            "wider",
        ),
        ("raise_error('my own words')", "sink 'out': my own words", ""),
    ],
)
def test_an_expression_that_fails_is_shown_with_its_reason(
    expression: str, message: str, hint: str, spark: SparkSession
) -> None:
    shown = said(written(spark.range(10).selectExpr(f"{expression} AS x")))
    assert message in shown.partition("\n")[0]
    assert hint in shown


def test_a_message_that_says_where_it_comes_from_is_left_as_it_is(spark: SparkSession) -> None:
    rows = spark.range(1).selectExpr("raise_error('source \\'in\\': broken') AS x")
    assert said(written(rows)) == "source 'in': broken"


def raising(error: BaseException) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def function(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        raise error

    return function


def killed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    os.kill(os.getpid(), signal.SIGKILL)


def test_errors_of_python_workers_are_told_as_if_they_were_raised_here(spark: SparkSession) -> None:
    rows = spark.range(4)
    own = said(written(rows.mapInArrow(raising(DataError("step 'f': no number", hint="look")), "id long")))
    assert own == "step 'f': no number\n  hint: look"
    users = said(written(rows.mapInArrow(raising(ValueError("two\n\nlines")), "id long")))
    assert users.startswith("sink 'out': ValueError: two lines (")
    assert users.endswith("in function)")
    gone = said(written(rows.mapInArrow(killed, "id long")))
    assert gone.startswith("sink 'out': a Python worker ended without a word")


def test_files_that_are_missing_or_damaged_are_named(spark: SparkSession, tmp_path: Path) -> None:
    assert f"there is no file or folder {tmp_path}/nothing" in said(lambda: spark.read.parquet(f"{tmp_path}/nothing"))
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nonsense")
    damaged = said(spark.read.schema("a int").parquet(f"{tmp_path}/a.parquet").collect)
    assert f"sink 'out': cannot read {tmp_path}/a.parquet: " in damaged


def test_a_plan_that_spark_refuses_is_our_fault(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="nope") as raised:
        spark.range(1).selectExpr("nope")
    failure: FlowrunError = job_failure(raised.value, "pipeline 'p'")
    assert isinstance(failure, InternalError)
    assert "pipeline 'p': Spark refuses what flowrun made of it" in failure.message


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault("OutOfMemoryError", "Java heap space"), "Spark ran out of memory"),
        (Fault("SparkException", "ExecutorLostFailure (executor 1 exited)"), "an executor was lost: ExecutorLost"),
        (Fault("IOException", "No space left on device"), "the disk is full: No space left on device"),
        (Fault("Strange", "of its   own\n kind"), "of its own kind"),
        (Fault("Strange", ""), "Strange"),
    ],
)
def test_faults_in_plain_words(fault: Fault, message: str) -> None:
    assert explain_fault(fault).message.startswith(message)
