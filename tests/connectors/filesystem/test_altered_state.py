"""State that somebody altered: what it names is read, renamed or removed only below the paths of the pipeline as it is now."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from flowrun.api.sink import Committable
from flowrun.api.source import Split
from flowrun.connectors.filesystem.sink import FileSink
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.errors import StateError
from flowrun.testing.connector_conformance import SourceDrive
from tests.connectors.filesystem.tables import sink, source

SCHEMA = Schema.of(id=BIGINT, name=STRING)
TEMPORARY = ".part-a.owner.inprogress"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A sink's folder with a finished part in it, beside a file that is none of its business."""
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / TEMPORARY).write_text("part")
    (folder / "kept.json").write_text("kept")
    (tmp_path / "victim").write_text("victim")
    (tmp_path / ".x.inprogress").write_text("planted")
    return folder


def target(out: Path) -> FileSink:
    return sink(out, "json", SCHEMA)


def test_a_part_of_the_sink_is_committed(out: Path) -> None:
    payload = {"from": str(out / TEMPORARY), "to": str(out / "part-a.json")}
    target(out).create_committer().commit([Committable("a", payload)])
    assert (out / "part-a.json").read_text() == "part"


@pytest.mark.parametrize(
    ("temporary", "final"),
    [
        ("OUT/.part-a.owner.inprogress", "OUT/../victim"),
        ("OUT/.part-a.owner.inprogress", "UP/victim"),
        ("OUT/.part-a.owner.inprogress", "OUT-2/part-a.json"),
        ("OUT/.part-a.owner.inprogress", "OUT/sub/part-a.json"),
        ("OUT/.part-a.owner.inprogress", "OUT/.part-b.owner.inprogress"),
        ("OUT/.part-a.owner.inprogress", "OUT/kept.json"),
        ("UP/.x.inprogress", "OUT/part-a.json"),
        ("OUT/../.x.inprogress", "OUT/part-a.json"),
        ("OUT/kept.json", "OUT/part-a.json"),
        ("/etc/hostname", "OUT/part-a.json"),
        ("OUT/.part-a.owner.inprogress", None),
        ("", ""),
    ],
)
def test_other_paths_are_neither_renamed_nor_removed(out: Path, temporary: str, final: str | None) -> None:
    def path(text: str) -> str:
        return text.replace("OUT", str(out)).replace("UP", str(out.parent))

    before = {p: p.read_text() for p in out.parent.rglob("*") if p.is_file()}
    committable = Committable("a", {"from": path(temporary), "to": None if final is None else path(final)})
    with pytest.raises(StateError, match="the state asks to"):
        target(out).create_committer().commit([committable])
    with pytest.raises(StateError, match="the state asks to"):
        target(out).create_committer().abort([committable])
    removed = Committable(str(committable.payload["to"]), committable.payload)
    with contextlib.suppress(StateError):
        target(out).create_committer().revert([removed])
    assert {p: p.read_text() for p in out.parent.rglob("*") if p.is_file()} == before


def test_a_mark_is_put_into_folders_of_the_sink_under_its_own_name_alone(out: Path) -> None:
    marking = sink(
        out,
        "json",
        SCHEMA,
        {"sink.partition-commit.policy.kind": "success-file"},
        partition_keys=("name",),
    )
    with pytest.raises(StateError, match="not below the sink's path"):
        marking.create_committer().commit([Committable("m", {"mark": str(out.parent / "victim")})])
    (out / "name=a").mkdir()
    (out / "name=a" / "rows.json").write_text("rows")
    marking.create_committer().commit([Committable("m", {"mark": str(out / "name=a" / "rows.json")})])
    assert (out / "name=a" / "rows.json").read_text() == "rows"
    assert (out / "name=a" / "_SUCCESS").exists()
    target(out).create_committer().commit([Committable("m", {"mark": str(out / "kept.json")})])
    assert (out / "kept.json").read_text() == "kept"


@pytest.mark.parametrize("path", ["UP/victim", "OUT/../victim", "/etc/hostname", "OUT-2/x.json"])
@pytest.mark.parametrize("pattern", ["OUT", "OUT/*.json", "OUT/kept.json"])
def test_files_elsewhere_are_not_read(out: Path, path: str, pattern: str) -> None:
    (out / "kept.json").write_text('{"id": 1, "name": "a"}\n')
    read = source(pattern.replace("OUT", str(out)), "json", SCHEMA)
    named = path.replace("OUT", str(out)).replace("UP", str(out.parent))
    position = {"path": named, "offset": 0, "stop": None, "aligned": True}
    with pytest.raises(StateError, match="the state asks to read"):
        SourceDrive(read, restored=[Split(named, position)]).run()
