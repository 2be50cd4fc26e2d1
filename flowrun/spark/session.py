"""Opens Spark sessions whose SQL has the semantics of flowrun's SQL."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from flowrun.core.record import record
from flowrun.errors import FlowrunError, OptionError, SetupError
from flowrun.spark.interruption import RUNS
from flowrun.spark.masters import check_master, check_remote, is_local, local_cores

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from flowrun.spark.jvm import Jvm

SEMANTICS: Mapping[str, str] = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    "spark.sql.timeType.enabled": "true",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.variant.allowDuplicateKeys": "true",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.pythonUDF.arrow.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}
"""Settings on which the results of translated pipelines depend; users cannot change them."""

_REASONS: Mapping[str, str] = {
    "spark.sql.ansi.enabled": "overflow, division by zero and bad casts are errors",
    "spark.sql.session.timeZone": "timestamps are in UTC",
    "spark.sql.caseSensitive": "column names are told apart by case",
    "spark.sql.timeType.enabled": "columns may be of type TIME",
    "spark.sql.timestampType": "TIMESTAMP and TIMESTAMP_LTZ are told apart by flowrun",
    "spark.sql.storeAssignmentPolicy": "values that do not fit are errors",
    "spark.sql.decimalOperations.allowPrecisionLoss": "decimals have the precision that Flink gives them",
    "spark.sql.mapKeyDedupPolicy": "of equal keys of a map the last one counts",
    "spark.sql.variant.allowDuplicateKeys": "of equal names in a JSON object the last one counts",
    "spark.sql.parquet.outputTimestampType": "timestamps are stored so that flowrun reads them",
    "spark.sql.execution.pythonUDF.arrow.enabled": "rows go to Python as Arrow batches",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "rows go to Python in batches of this size",
}
_MEANING_PREFIXES = ("spark.sql.ansi.", "spark.sql.legacy.", "spark.sql.parser.")

DEFAULTS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.dataFrameQueryContext.enabled": "false",  # else Spark inspects Python's stack for each column that is made
}
"""Settings of a local session that users can change."""

_LEAST_MEMORY_MB, _MOST_MEMORY_MB = 1024, 16 * 1024
_CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
"""An environment variable that PySpark sets when it connects, and which makes its functions those of Connect from then on."""
_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


@record
class SparkOptions:
    """Where and how Spark runs.

    Attributes:
        master: the master URL; None: `local[*]`.
        remote: the Connect URL of a running server; then there is no master.
        conf: further settings of Spark.
        log_level: the level of Spark's own log, which goes to standard error.
    """

    master: str | None = None
    remote: str | None = None
    conf: Mapping[str, str] | None = None
    log_level: str = "OFF"


def open_session(options: SparkOptions, name: str = "flowrun") -> SparkSession:
    """A session as the options say, with flowrun's semantics.

    If this process runs Spark already, it is a new session of that Spark.

    Raises:
        OptionError: options contradict each other or flowrun's semantics, or a URL is wrong.
        SetupError: Spark cannot be started or reached.
    """
    conf = _checked(options.conf or {})
    master = _one_of(options.master, conf.pop("spark.master", None), "--spark-master")
    remote = _one_of(options.remote, conf.pop("spark.remote", None), "--spark-remote")
    _quiet_pyspark()
    if remote is not None:
        if master is not None:
            raise OptionError("--spark-remote", "a Connect server has its own master", hint="leave out --spark-master")
        return _connect(remote, conf)
    running = _running_context()
    return _start(master or "local[*]", conf, options, name) if running is None else _join(running, master, conf)


@contextmanager
def spark_session(options: SparkOptions, name: str = "flowrun") -> Iterator[SparkSession]:
    """A session for one run, as `open_session` gives it; what was started for it is stopped at the end."""
    was_running = _running_context() is not None
    session = open_session(options, name)
    try:
        with RUNS.running(session, is_own=not was_running):
            yield session
    finally:
        if not was_running:
            with suppress(Exception):  # the run is over, so that a failure to stop Spark does not matter
                session.stop()
            os.environ.pop(_CONNECT_MODE, None)


def _checked(conf: Mapping[str, str]) -> dict[str, str]:
    """The user's settings without those that only repeat flowrun's.

    Raises:
        OptionError: a setting would change the results of pipelines.
    """
    for key, value in conf.items():
        needed = SEMANTICS.get(key)
        if needed is not None:
            if value.lower() != needed.lower():
                raise OptionError(
                    "--conf", f"{key} cannot be {value}: {_REASONS[key]}", hint=f"leave it out; it is {needed}"
                )
        elif key.startswith(_MEANING_PREFIXES):
            raise OptionError("--conf", f"{key} cannot be set: it changes what SQL means", hint="leave it out")
    return {key: value for key, value in conf.items() if key not in SEMANTICS}


def _one_of(option: str | None, setting: str | None, name: str) -> str | None:
    if option is not None and setting is not None and option != setting:
        raise OptionError(name, f"{name} says {option}, --conf says {setting}", hint="give one of them")
    return option or setting


def _quiet_pyspark() -> None:
    """Stop PySpark from logging errors as JSON, which it also raises."""
    for name in _LOGGERS:
        logging.getLogger(name).disabled = True


def _running_context() -> SparkContext | None:
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext

    return SparkContext._active_spark_context


def _join(running: SparkContext, master: str | None, conf: Mapping[str, str]) -> SparkSession:
    """A new session of a Spark that runs already."""
    from pyspark.sql import SparkSession

    if master is not None and master != running.master:
        raise SetupError(
            f"this process runs Spark on {running.master}, not on {master}",
            hint="stop it first, or leave the master out",
        )
    session = SparkSession.builder.getOrCreate().newSession()
    _set_all(session, {**conf, **SEMANTICS}, "set it where this process starts Spark")
    return session


def _start(master: str, conf: Mapping[str, str], options: SparkOptions, name: str) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    check_master(master)
    local = is_local(master)
    settings = {
        "spark.master": master,
        "spark.app.name": name,
        **(_local_defaults(master) if local else {"spark.ui.showConsoleProgress": "false"}),
        **conf,
        **SEMANTICS,
    }
    if local:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    jvm = _process(settings, options.log_level, ships_python=not local)
    spark_conf = SparkConf(loadDefaults=False)
    for key, value in settings.items():
        spark_conf.set(key, value)
    spark_conf.setIfMissing("spark.sql.warehouse.dir", str(jvm.scratch / "warehouse"))
    try:
        context = SparkContext(conf=spark_conf, gateway=jvm.gateway)
        session = SparkSession(context, options=settings)
    except FlowrunError:
        raise
    except Exception as error:
        from flowrun.spark.failures import first_line

        raise SetupError(
            f"Spark does not start on {master}: {first_line(error)}", hint="`--log-level info` shows its log"
        ) from error
    jvm.forward_output()
    if not local:
        context.addPyFile(_packed())
    return session


def _local_defaults(master: str) -> dict[str, str]:
    cores = local_cores(master)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // (2 * 1024 * 1024)
    return {
        **DEFAULTS,
        "spark.driver.memory": f"{max(_LEAST_MEMORY_MB, min(_MOST_MEMORY_MB, memory))}m",
        "spark.default.parallelism": str(cores),
        "spark.sql.shuffle.partitions": str(cores),
    }


_process_of_spark: list[Jvm] = []


def _process(settings: Mapping[str, str], log_level: str, *, ships_python: bool) -> Jvm:
    """The Java process, which the first call starts."""
    if not _process_of_spark:
        from flowrun.spark.jvm import start_jvm

        _process_of_spark.append(start_jvm(settings, log_level, ships_python=ships_python))
    return _process_of_spark[0]


def _connect(url: str, conf: Mapping[str, str]) -> SparkSession:
    """A session of a Connect server."""
    check_remote(url)
    from pyspark.sql import SparkSession

    from flowrun.spark.failures import first_line

    try:
        session = SparkSession.builder.remote(url).getOrCreate()
    except ImportError as error:
        raise SetupError(
            f"Spark Connect lacks {first_line(error)}", hint="pip install '.[connect]' in flowrun's folder"
        ) from error
    except Exception as error:
        raise SetupError(f"cannot use the Spark Connect server at {url}: {first_line(error)}") from error
    _set_all(session, {**conf, **SEMANTICS}, "set it where the server is started")
    session.addArtifacts(_packed(), pyfile=True)
    return session


def _set_all(session: SparkSession, settings: Mapping[str, str], hint: str) -> None:
    """Set those settings that a session of a Spark that runs already can have."""
    from flowrun.spark.failures import first_line

    for key, value in settings.items():
        try:
            session.conf.set(key, value)
        except Exception as error:
            raise OptionError("--conf", f"Spark refuses {key}={value}: {first_line(error)}", hint=hint) from error


def _packed() -> str:
    """The path of a zip file with flowrun's package, for workers on other machines."""
    import flowrun
    from flowrun.spark.jvm import scratch_folder

    source = Path(flowrun.__file__).resolve().parent
    return shutil.make_archive(str(scratch_folder() / "flowrun"), "zip", source.parent, source.name)
