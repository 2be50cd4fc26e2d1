"""Follows a page of docs/tutorials as its reader would: writes its files, runs its commands as they stand, and compares what they print.

| block | is |
|---|---|
| `sh` | run by bash, in the folder and with the variables that the blocks before have left |
| `text` right behind it | all that was printed; behind which no such block stands prints nothing |
| any other, with `title="PATH"` | that file |

In what is printed `…` stands for the rest of a line's part, a line of it alone for any lines; durations and rates are not compared, and the
folder of the test is called `/home/you`. Comments in front of a block say what a reader would do without being told:

- `<!-- wait until: COMMAND -->`: before the block is run the command has to succeed;
- `<!-- Ctrl-C after: TEXT -->`: the block is interrupted when it has printed the text;
- `<!-- exit code: 1 -->`: that of the block;
- `<!-- in any order -->`: the lines that are printed have none;
- `<!-- not run: REASON -->`.

`FLOWRUN_UPDATE_GOLDEN=1 pytest tests/test_tutorials.py` writes what is printed into the pages; read the difference.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

HOME = "/home/you"
_BLOCK = re.compile(r"((?:^<!-- .*? -->\n+)*)^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SAID = re.compile(r"<!-- ([\w -]+?)(?:: (.*?))? -->")
_WORDS = {"wait until", "Ctrl-C after", "exit code", "in any order", "not run"}
_MEASURED = re.compile(r"(?<![\w.])(?:\d+ min )?\d+(?:\.\d+)?(?: (?:ms|s)\b| ?[kM]?(?: rows)?/s)")
_LIMIT_S = 240.0
_IS_UPDATED = os.environ.get("FLOWRUN_UPDATE_GOLDEN") == "1"
_PRELUDE = 'set -eo pipefail; . "$PAGE_STATE/variables"; cd "$(cat "$PAGE_STATE/folder")"\n'
_POSTLUDE = '{ pwd > "$PAGE_STATE/folder"; export -p > "$PAGE_STATE/variables"; }'


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page, and what comments in front of it say."""

    language: str
    title: str | None
    text: str
    said: Mapping[str, str]
    line: int
    span: tuple[int, int]
    """Where its text is in the page."""


def blocks_of(page: str) -> list[Block]:
    """All fenced blocks of a page. Raises AssertionError for one that says something else than this module knows."""
    found = []
    for match in _BLOCK.finditer(page):
        said = dict(_SAID.findall(match[1]))
        line = page.count("\n", 0, match.start(2)) + 1
        assert said.keys() <= _WORDS, f"line {line}: {said}"
        assert match[3] or match[2] in ("sh", "text"), f"line {line}: a block that is no command, no output and no file"
        found.append(Block(match[2], match[3], match[4], said, line, match.span(4)))
    assert len(found) == len(re.findall(r"^```\w", page, re.MULTILINE)), "a block that this module does not see"
    return found


def agrees(expected: str, found: str, *, in_any_order: bool = False) -> bool:
    """Whether a text that was printed is what a page says.

    >>> agrees("a … c\\n…\\nin 0.5 s\\n", "a b c\\nx\\ny\\nin 12 ms\\n")
    True
    >>> agrees("a\\n", "a\\nb\\n")
    False
    """
    lines = [_MEASURED.sub("#", line.rstrip()) for line in expected.splitlines()]
    printed = [_MEASURED.sub("#", line.rstrip()) for line in found.splitlines()]
    if in_any_order:
        lines, printed = sorted(lines), sorted(printed)
    pattern = "".join(
        r"(?:.*\n)*?" if line == "…" else ".*?".join(map(re.escape, line.split("…"))) + r"\n" for line in lines
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


class Reader:
    """Does what a page says, in a folder of its own."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self.folder = folder / "page"
        self.folder.mkdir()
        self._state = folder / "state"
        self._state.mkdir()
        (self._state / "folder").write_text(str(self.folder))
        (self._state / "variables").write_text("")
        commands = folder / "bin"
        commands.mkdir()
        (commands / "flowrun").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m flowrun "$@"\n')
        (commands / "flowrun").chmod(0o755)
        self._environment = {
            **os.environ,
            **variables,
            "PATH": f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "PAGE_STATE": str(self._state),
            "FLOWRUN_RUNTIME_DIR": str(folder / "runtime"),
            "COLUMNS": "110",
        }
        self._groups: list[int] = []

    def write(self, block: Block) -> None:
        """Write the file that a block is."""
        assert block.title is not None
        path = Path((self._state / "folder").read_text().strip()) / block.title
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")

    def run(self, block: Block) -> str:
        """What the commands of a block print. Raises AssertionError if they end with another exit code than said."""
        if "wait until" in block.said:
            self._wait_until(block.said["wait until"])
        printed = self._state / "printed"
        with printed.open("w") as file:
            process = self._begin(block.text, file.fileno())
        interrupted = block.said.get("Ctrl-C after")
        if interrupted is not None:
            self._until(
                lambda: interrupted in printed.read_text() or process.poll() is not None, f"it said {interrupted!r}"
            )
            os.killpg(process.pid, signal.SIGINT)
        code = process.wait(_LIMIT_S)
        text = printed.read_text().replace(str(self.folder), HOME)
        allowed = {0, 130, -signal.SIGINT} if interrupted else {int(block.said.get("exit code", "0"))}
        assert code in allowed, f"line {block.line}: exit code {code}\n{text}"
        return text

    def _begin(self, text: str, out: int) -> subprocess.Popen[bytes]:
        script = f"trap '{_POSTLUDE}' EXIT\n{_PRELUDE}{text}"
        process = subprocess.Popen(
            ["bash", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=self._environment,
            start_new_session=True,
        )
        self._groups.append(process.pid)
        return process

    def _wait_until(self, command: str) -> None:
        def succeeds() -> bool:
            process = self._begin(command, subprocess.DEVNULL)
            return process.wait(_LIMIT_S) == 0

        self._until(succeeds, f"`{command}` succeeds")

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _LIMIT_S
        pause = threading.Event()
        while not condition():
            assert time.monotonic() < deadline, f"waited {_LIMIT_S:.0f} s until {what}; printed: {self._printed()}"
            pause.wait(0.05)

    def _printed(self) -> str:
        path = self._state / "printed"
        return path.read_text() if path.exists() else ""

    def close(self) -> None:
        """End what blocks have started and not ended."""
        for group in self._groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                continue


@contextmanager
def reader(folder: Path, variables: Mapping[str, str]) -> Iterator[Reader]:
    """Somebody who follows a page."""
    made = Reader(folder, variables)
    try:
        yield made
    finally:
        made.close()


def follow(page: Path, folder: Path, variables: Mapping[str, str]) -> None:
    """Do all that a page says. Raises AssertionError with the difference where something else is printed."""
    text = page.read_text(encoding="utf-8")
    blocks = blocks_of(text)
    corrected: list[tuple[tuple[int, int], str]] = []
    try:
        with reader(folder, variables) as one:
            for position, block in enumerate(blocks):
                if "not run" in block.said:
                    continue
                if block.title is not None:
                    one.write(block)
                elif block.language == "sh":
                    follower = blocks[position + 1] if position + 1 < len(blocks) else None
                    output = follower if follower is not None and follower.language == "text" else None
                    found = one.run(block)
                    in_any_order = output is not None and "in any order" in output.said
                    if not agrees(output.text if output else "", found, in_any_order=in_any_order):
                        if not _IS_UPDATED or output is None:
                            raise AssertionError(_difference(page, block, output, found))
                        printed = "".join(f"{line.rstrip()}\n" for line in found.splitlines())
                        corrected.append((output.span, printed))
    finally:
        for (begin, end), found in reversed(corrected):
            text = text[:begin] + found + text[end:]
        if corrected:
            page.write_text(text, encoding="utf-8")


def _difference(page: Path, block: Block, output: Block | None, found: str) -> str:
    said = output.text.splitlines() if output else []
    lines = unified_diff(said, found.splitlines(), "the page", "what was printed", lineterm="", n=100)
    return f"{page.name}:{block.line}: {block.text}\n" + "\n".join(lines)
