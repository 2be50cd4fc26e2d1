"""A folder that looks like a Java home, whose `java` starts the real one with what flowrun wants of it.

Spark's launcher adds the module `jdk.incubator.vector`, which runtimes made by jlink need not have, and a JVM that misses a module that it
is to add does not start: for such a runtime the argument is left out. (Spark uses the module for nothing but faster linear algebra.)
The driver gets an archive of Spark's classes. Spark's launcher and the executors of `local-cluster` find the folder as `JAVA_HOME`.

The workers of `local-cluster` write below `SPARK_HOME`, wherever that is: the driver is given one that may be thrown away. Its own classes
are still those of the real one, for which the archive was made.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from flowrun.spark.class_archive import ClassArchive
from flowrun.spark.java import OPTIONAL_MODULE, Java

_DRIVER = "org.apache.spark.deploy.SparkSubmit"
_LAUNCHER = "org.apache.spark.launcher.Main"
"""Makes the driver's command line, which it is given in part."""
_WORK = "work"
"""The folder of `local-cluster`'s workers in `SPARK_HOME`."""


def java_home(java: Java, archive: ClassArchive | None, scratch: Path, spark_home: Path | None = None) -> Path:
    """The folder to be used as `JAVA_HOME`: the runtime's own if nothing is to be done, else one that is made below `scratch`.

    Args:
        java: the runtime.
        archive: for the driver.
        scratch: a folder for what is made.
        spark_home: `SPARK_HOME` of the driver; None: as it is.
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
    """A folder below `scratch` with all that is in a Spark's, by links: what is written into it stays there."""
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
    """Whoever started this may be gone when the archive is written, so it gets its name here."""
    unfinished, path = shlex.quote(str(archive.unfinished)), shlex.quote(str(archive.path))
    base = "" if archive.base is None else shlex.quote(str(archive.base))
    return [
        *([f"{command} -Xshare:dump -XX:SharedArchiveFile={base} -Xlog:disable >/dev/null 2>&1"] if base else []),
        f'{command} {f"-XX:SharedArchiveFile={base} " if base else ""}-XX:ArchiveClassesAtExit={unfinished} -Xlog:disable "$@"',
        "code=$?",
        f"mv {unfinished} {path} 2>/dev/null",
        "exit $code",
    ]
