"""Makes a folder that looks like a Java home, whose `java` starts the real one with other arguments.

Spark's launcher adds the module `jdk.incubator.vector`, which runtimes made by jlink need not have, and a JVM without a module that it is
told to add does not start: for such a runtime the argument is left out. (Spark uses the module only for faster linear algebra.) The driver
is started with an archive of Spark's classes. Spark's launcher and the executors of `local-cluster` find the folder as `JAVA_HOME`.

The workers of `local-cluster` write below `SPARK_HOME`: the driver gets one that can be removed afterwards. Its own classes are still those
of the real one, for which the archive was written.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from flowrun.spark.class_archive import ClassArchive
from flowrun.spark.java import OPTIONAL_MODULE, Java

_DRIVER = "org.apache.spark.deploy.SparkSubmit"
_LAUNCHER = "org.apache.spark.launcher.Main"
"""The class that makes the command line of the driver, and gets a part of it as arguments."""
_WORK = "work"
"""The folder in `SPARK_HOME` into which the workers of `local-cluster` write."""


def java_home(java: Java, archive: ClassArchive | None, scratch: Path, spark_home: Path | None = None) -> Path:
    """The folder to use as `JAVA_HOME`: the runtime's own if nothing is to be changed, else one that is made below `scratch`.

    Args:
        java: the runtime.
        archive: the archive of classes for the driver; None: there is none.
        scratch: the folder below which files are made.
        spark_home: the `SPARK_HOME` for the driver; None: it is not changed.
    """
    if not java.lacks_module and archive is None and spark_home is None:
        return java.home
    home = scratch / "java"
    home.joinpath("bin").mkdir(parents=True)
    script = home / "bin" / "java"
    script.write_text("\n".join(_script(java, archive, spark_home)) + "\n", encoding="utf-8")
    script.chmod(0o755)
    return home


def throwaway_spark_home(spark_home: Path, scratch: Path) -> Path:
    """A folder below `scratch` with links to all that is in the folder of Spark, whose own content does not change when files are added."""
    home = scratch / "spark"
    home.mkdir()
    for part in spark_home.iterdir():
        if part.name != _WORK:
            home.joinpath(part.name).symlink_to(part.resolve())
    return home


def _script(java: Java, archive: ClassArchive | None, spark_home: Path | None) -> list[str]:
    command = shlex.quote(str(java.home / "bin" / "java"))
    lines = ["#!/bin/sh"]
    if java.lacks_module:
        lines += [
            'for given in "$@"; do',
            "  shift",
            f'  [ "$given" = "--add-modules={OPTIONAL_MODULE}" ] || set -- "$@" "$given"',
            "done",
        ]
    driver = [] if spark_home is None else [f"export SPARK_HOME={shlex.quote(str(spark_home))}"]
    if archive is not None:
        driver += _making(command, archive) if archive.make else _using(command, archive)
    if driver:
        lines += [
            'case " $* " in',
            f'*" {_LAUNCHER} "*) ;;',
            f'*" {_DRIVER} "*)',
            *(f"  {line}" for line in driver),
            "  ;;",
            "esac",
        ]
    return [*lines, f'exec {command} "$@"']


def _using(command: str, archive: ClassArchive) -> list[str]:
    used = f"{archive.path}" if archive.base is None else f"{archive.base}:{archive.path}"
    return [f'exec {command} -XX:SharedArchiveFile={shlex.quote(used)} -Xlog:disable "$@"']


def _making(command: str, archive: ClassArchive) -> list[str]:
    """The lines of the script that write the archive and rename it: the process that started it may have ended then."""
    unfinished, path = shlex.quote(str(archive.unfinished)), shlex.quote(str(archive.path))
    base = "" if archive.base is None else shlex.quote(str(archive.base))
    return [
        *([f"{command} -Xshare:dump -XX:SharedArchiveFile={base} -Xlog:disable >/dev/null 2>&1"] if base else []),
        f'{command} {f"-XX:SharedArchiveFile={base} " if base else ""}-XX:ArchiveClassesAtExit={unfinished} -Xlog:disable "$@"',
        "code=$?",
        f"mv {unfinished} {path} 2>/dev/null",
        "exit $code",
    ]
