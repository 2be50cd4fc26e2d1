"""Apache Flink as a peer: SQL scripts in its mini cluster, with its Kafka connector.

`python -m benchmarks.flink` installs it beside the servers of the tests (330 MB from PyPI and Maven Central); without it, figures have no
such peer.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tests.servers.kafka import kafka_folder

VERSION = "2.3.0"
_KAFKA_CONNECTOR = "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2"
_PACKAGES = (
    f"apache-flink=={VERSION}", f"apache-flink-libraries=={VERSION}", "py4j==0.10.9.7", "cloudpickle", "python-dateutil", "pytz", "six",
    "ruamel.yaml", "typing_extensions", "avro", "protobuf", "pandas", "numpy", "pyarrow",
)  # fmt: skip
"""Without Apache Beam, which only functions in Python need."""
_RUN = """
import sys
from pyflink.table import EnvironmentSettings, TableEnvironment

jar, script, parallelism = sys.argv[1:]
tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
tables.get_config().set("pipeline.jars", "file://" + jar)
tables.get_config().set("parallelism.default", parallelism)
for statement in filter(str.strip, open(script).read().split(";")):
    if statement.strip().startswith("SET"):
        name, value = (word.strip().strip("'") for word in statement.strip()[4:].split("="))
        tables.get_config().set(name, value)
    else:
        result = tables._j_tenv.executeSql(statement)
print(result.getJobClient().get().getJobExecutionResult().get().getNetRuntime() / 1000)
"""


def folder() -> Path:
    """Where it is installed."""
    return kafka_folder().parent / f"flink-{VERSION}"


def is_installed() -> bool:
    return (folder() / "complete").exists()


def install() -> None:
    venv.create(folder() / "python", with_pip=True)
    subprocess.run([folder() / "python/bin/python", "-m", "pip", "install", "-q", "--no-deps", *_PACKAGES], check=True)
    copy = [
        "dependency:copy",
        f"-Dartifact={_KAFKA_CONNECTOR}",
        f"-DoutputDirectory={folder()}",
        "-Dmdep.stripVersion=true",
    ]
    subprocess.run(["mvn", "-q", "-B", *copy], check=True)
    (folder() / "complete").touch()


def job_seconds(script: str, parallelism: int) -> float:
    """How long the last statement of a script runs, its JVM started and its plan made.

    Args:
        script: statements without `;` and `=` in quotes of SET.
        parallelism: of all operators.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(script)
        file.flush()
        jar = folder() / "flink-sql-connector-kafka.jar"
        done = subprocess.run(
            [folder() / "python/bin/python", "-c", _RUN, str(jar), file.name, str(parallelism)],
            check=False, capture_output=True, text=True, timeout=1200,
            env={**os.environ, "_python_worker_execution_mode": "process"},
        )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"Flink failed:\n{done.stderr[-3000:]}")
    return float(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    if is_installed():
        sys.exit(f"it is in {folder()}")
    install()
