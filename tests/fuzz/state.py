"""Savepoints whose metadata have a right checksum and a wrong shape: every reader says so, and none hides the others."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import random
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click

from flowrun.cli.main import cli
from flowrun.errors import FlowrunError
from flowrun.graph.job_graph import JobGraph
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.inspection.snapshots import list_snapshots
from flowrun.runtime.checkpoint.compatibility import compare
from flowrun.state.storage.documents import rendered
from flowrun.state.storage.metadata_file import read_metadata
from tests.recovery.kept import HERE, PIPELINE

_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30, 1.5, float("nan"), "", "0", "1", "x", "-1", "007", "²",
    "../../x", "/etc/passwd", "chk-1/x.parquet", "\x00", [], [0], [None], [[]], ["x"], [0, 0], [1, 0], {}, {"0": 0}, {"x": {}}, "union",
    "savepoint", "checkpoint", "é" * 300,
)  # fmt: skip


class DamagedSavepoint:
    """A savepoint that is damaged again and again, beside one that is whole.

    Args:
        folder: an empty one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = self._damaged = folder / "savepoint-damaged-1"
        self._whole = folder / "savepoint-whole-2"
        for place in (self._damaged, self._whole):
            shutil.copytree(HERE / "format-1", place)
        self._document = json.loads((self._damaged / "_metadata.json").read_text(encoding="utf-8"))

    def whole(self) -> dict[str, Any]:
        """The document as it should be."""
        return copy.deepcopy(self._document)

    def damaged(self, chance: random.Random) -> dict[str, Any]:
        """The document with one to three changes."""
        document = self.whole()
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            change(document, chance)
        return document

    def write(self, document: dict[str, Any]) -> None:
        """Give it this document, with the right checksum."""
        text = rendered({k: v for k, v in document.items() if k not in ("format_version", "checksum")})
        (self._damaged / "_metadata.json").write_bytes(text)

    def read(self, document: dict[str, Any]) -> None:
        """What every reader makes of it.

        Raises:
            Exception: whatever users must never see.
        """
        self.write(document)
        (folder,) = list_snapshots(str(self._folder))
        states = {Path(s.path).name: s.state for s in folder.snapshots}
        assert states[self._whole.name] == "complete"
        if states[self._damaged.name] != "complete":
            return
        for arguments in (("list", self._folder), ("show", self._damaged), ("show", self._damaged, "--format", "json")):
            with contextlib.suppress(FlowrunError, click.exceptions.Exit), contextlib.redirect_stdout(io.StringIO()):
                cli.main(["state", *map(str, arguments)], standalone_mode=False)
        with contextlib.suppress(FlowrunError):
            compare(read_metadata(str(self._damaged)), _job_graph())


@cache
def _job_graph() -> JobGraph:
    return compile_pipeline(PIPELINE, {"OUT": "/nowhere"}, {}).job_graph


def change(document: Any, chance: random.Random) -> None:
    """Change one place of a document that holds something."""
    places = list(_places(document))
    container, key = chance.choice(places)
    match chance.randrange(6):
        case 0:
            del container[key]
        case 1 if isinstance(container, dict):
            container[chance.choice(("x", "0", "rows", "watermark", "", "path"))] = chance.choice(_VALUES)
        case 1:
            container.insert(key, chance.choice(_VALUES))
        case 2:
            other, place = chance.choice(places)
            container[key] = copy.deepcopy(other[place])
        case 3 if isinstance(container[key], int) and not isinstance(container[key], bool):
            container[key] += chance.choice((-1, 1, 1000, 2**40))
        case _:
            container[key] = chance.choice(_VALUES)


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in list(items):
        yield node, key
        yield from _places(value)
