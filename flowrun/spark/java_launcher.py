"""A folder that looks like a Java home, whose `java` starts the real one with what flowrun wants of it.

Spark's launcher adds the module `jdk.incubator.vector`, which runtimes made by jlink need not have, and a JVM that misses a module that it
is to add does not start: for such a runtime the argument is left out. (Spark uses the module for nothing but faster linear algebra.)
The driver gets an archive of Spark's classes. Spark's launcher and the executors of `local-cluster` find the folder as `JAVA_HOME`.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from flowrun.spark.class_archive import ClassArchive
from flowrun.spark.java import OPTIONAL_MODULE, Java

_DRIVER = "org.apache.spark.deploy.SparkSubmit"
_LAUNCHER = "org.apache.spark.launcher.Main"
"""Makes the driver's command line, which it is given in part."""


def java_home(java: Java, archive: ClassArchive | None, scratch: Path) -> Path:
    """The folder to be used as `JAVA_HOME`: the runtime's own if nothing is to be done, else one that is made below `scratch`."""
    if not java.lacks_module and archive is None:
        return java.home
    home = scratch / "java"
    home.joinpath("bin").mkdir(parents=True)
    script = home / "bin" / "java"
    script.write_text("\n".join(_script(java, archive)) + "\n", encoding="utf-8")
    script.chmod(0o755)
    return home


def _script(java: Java, archive: ClassArchive | None) -> list[str]:
    command = shlex.quote(str(java.home / "bin" / "java"))
    lines = ["#!/bin/sh"]
    if java.lacks_module:
        lines += [
            'for given in "$@"; do',
            "  shift",
            f'  [ "$given" = "--add-modules={OPTIONAL_MODULE}" ] || set -- "$@" "$given"',
            "done",
        ]
    if archive is not None:
        driver = _making(command, archive) if archive.make else _using(command, archive)
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
    return [f'exec {command} -XX:SharedArchiveFile={shlex.quote(str(archive.path))} -Xlog:disable "$@"']


def _making(command: str, archive: ClassArchive) -> list[str]:
    """Whoever started this may be gone when the archive is written, so it gets its name here."""
    unfinished, path = shlex.quote(str(archive.unfinished)), shlex.quote(str(archive.path))
    return [
        f'{command} -XX:ArchiveClassesAtExit={unfinished} -Xlog:disable "$@"',
        "code=$?",
        f"mv {unfinished} {path} 2>/dev/null",
        "exit $code",
    ]
