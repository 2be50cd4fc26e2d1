"""Starts the Java process of Spark, and shows its output on the terminal only if that is wanted."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import flowrun
from flowrun.core.printable import printable
from flowrun.errors import SetupError
from flowrun.spark.class_archive import class_archive
from flowrun.spark.java import find_java
from flowrun.spark.java_launcher import java_home, throwaway_spark_home
from flowrun.spark.masters import LOCAL_CLUSTER

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

_LOG4J = Path(__file__).parent / "log4j2.properties"
_KEPT_LINES = 200


class Jvm:
    """The Java process of this Python process. There is only one, which later sessions use again.

    Attributes:
        gateway: the connection through which PySpark calls it.
        scratch: a folder for files that are needed as long as the process lives.
    """

    def __init__(self, gateway: JavaGateway, output: _Output, scratch: Path) -> None:
        self.gateway = gateway
        self.scratch = scratch
        self._output = output

    def forward_output(self) -> None:
        """Show the output of the process from now on: what Python functions print, and Spark's log if there is one."""
        self._output.forward()


def start_jvm(conf: Mapping[str, str], log_level: str, *, ships_python: bool) -> Jvm:
    """Start the Java process.

    Args:
        conf: settings of Spark.
        log_level: the level of Spark's log: OFF, WARN, INFO, …
        ships_python: whether workers run on other machines, which have Pythons of their own.

    Raises:
        SetupError: there is no Java, or the process ends at once.
    """
    java = find_java()
    scratch = scratch_folder()
    archive = None if ships_python else class_archive(java, conf)
    variables = {
        "JAVA_HOME": str(java_home(java, archive, scratch, _spark_home(conf, scratch))),
        "SPARK_SUBMIT_OPTS": " ".join(
            [
                os.environ.get("SPARK_SUBMIT_OPTS", ""),
                f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}",
                f"-Dflowrun.spark.log={log_level}",
            ]
        ).strip(),
        "PYTHONPATH": _python_path(),
        "PYTHONSAFEPATH": "1",  # workers start in the user's folder, whose modules must not hide others
    }
    if not ships_python:
        variables["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    output = _Output(forwards=log_level != "OFF")
    with _environment(variables):
        return Jvm(_launch(conf, output), output, scratch)


def scratch_folder() -> Path:
    """A folder that is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="flowrun-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _spark_home(conf: Mapping[str, str], scratch: Path) -> Path | None:
    """A `SPARK_HOME` for the workers of `local-cluster` to write to instead of Spark's own folder; None for all other masters."""
    if LOCAL_CLUSTER.fullmatch(conf["spark.master"]) is None:
        return None
    from pyspark.find_spark_home import _find_spark_home

    return throwaway_spark_home(Path(_find_spark_home()), scratch)


def _launch(conf: Mapping[str, str], output: _Output) -> JavaGateway:
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    settings = SparkConf(loadDefaults=False)
    for key, value in conf.items():
        settings.set(key, value)
    with output.pipe() as end:
        try:
            in_session = {"start_new_session": True}  # what a terminal sends to all its processes, the command answers
            return launch_gateway(settings, {"stdout": end, "stderr": subprocess.STDOUT, **in_session})
        except PySparkRuntimeError as error:
            end.close()
            output.wait()
            raise SetupError(
                f"Spark does not start: {output.telling_line() or 'its Java process ended at once'}",
                hint="`--log-level info` shows its log",
            ) from error


class _Output:
    """Reads the output of the process, in a thread of its own. It is thread-safe."""

    def __init__(self, *, forwards: bool) -> None:
        self._forwards = forwards
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._reader: threading.Thread | None = None

    @contextmanager
    def pipe(self) -> Iterator[IO[bytes]]:
        """A context that gives the end of the pipe for the process, and closes it in this process afterwards."""
        read, write = os.pipe()
        self._reader = threading.Thread(target=self._read, args=(read,), name="flowrun-spark-output", daemon=True)
        self._reader.start()
        with os.fdopen(write, "wb") as end:
            yield end

    def wait(self) -> None:
        """Wait until the process has closed its end of the pipe."""
        if self._reader is not None:
            self._reader.join(5)

    def forward(self) -> None:
        self._forwards = True

    def telling_line(self) -> str:
        """The last line that names an exception or an error, else the last line."""
        lines = [line.strip() for line in self._lines if line.strip()]
        telling = [s for s in lines if not s.startswith(("at ", "WARNING:", "\tat"))]
        named = [s for s in telling if "Exception" in s or "rror" in s]
        return re.sub(
            r'^(Exception in thread "[^"]*" |Caused by: )?([\w.$]+(Exception|Error): )',
            "",
            (named or telling or [""])[-1],
        )

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "r", encoding="utf-8", errors="replace") as stream:
            for line in stream:
                self._lines.append(line)
                if self._forwards:
                    sys.stderr.write(printable(line))
                    sys.stderr.flush()


def _python_path() -> str:
    """The `PYTHONPATH` of workers on this machine, with which they can import flowrun even if it is not installed."""
    folder = Path(flowrun.__file__).resolve().parent.parent
    given = os.environ.get("PYTHONPATH", "")
    if str(folder) in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *given.split(os.pathsep)):
        return given
    return os.pathsep.join(filter(None, (given, str(folder))))


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """A context in which environment variables are set: the process gets those of this one when it is started."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
