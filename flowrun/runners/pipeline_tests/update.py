"""Rewrites what tests expect as it came, in their files: rows alone change, comments and layout around them stay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flowrun.core.record import record
from flowrun.errors import PipelineError
from flowrun.frontend.pipeline_tests.document import Expected, Look
from flowrun.frontend.trees.nodes import YamlNode, YamlScalar, YamlSequence
from flowrun.runners.pipeline_tests.captured import Change
from flowrun.runners.pipeline_tests.check import Result, as_expected, came
from flowrun.runners.pipeline_tests.row_texts import row_text
from flowrun.runners.pipeline_tests.run import Seen


@record
class Edit:
    """Text in place of the code points `start` ≤ i < `end`."""

    start: int
    end: int
    text: str


def edits_of(result: Result) -> list[Edit]:
    """What has to change in the file so that a test that failed expects the rows that came; empty: nothing that can be rewritten.

    Raises:
        PipelineError: its rows are in another file, or are used twice.
    """
    test, outcome = result.bound.test, result.outcome
    if (outcome.error is None) != (test.error is None):
        return []
    looks = [action for action in test.actions if isinstance(action, Look)]
    pairs: list[tuple[Expected, Seen, bool]] = []
    for look, seen in zip(looks, outcome.looks, strict=False):
        pairs += [(expected, seen, True) for expected in look.expected]
    pairs += [(expected, outcome.looks[-1], False) for expected in test.expected]
    found: list[Edit] = []
    for expected, seen, so_far in pairs:
        rows = result.bound.expected[id(expected)]
        if as_expected(rows, seen, so_far=so_far) is None:
            continue
        changes = came(rows, seen, so_far=so_far)
        found.append(_edit(expected, rows.columns, changes))
    return found


def _edit(expected: Expected, columns: tuple[str, ...], changes: Sequence[Change]) -> Edit:
    node = expected.rows.node
    if not isinstance(node, YamlSequence | YamlScalar):
        at = node.location
        raise PipelineError.of(
            f"{at}: the rows that are expected of sink '{expected.sink}' are in a file of their own, which is not rewritten",
            hint="write them into the file of tests: rows: []",
        )
    shown = [row_text(columns, change.row) for change in changes]
    if expected.changes:
        shown = [f"{{{change.kind.symbol}: {text}}}" for change, text in zip(changes, shown, strict=True)]
    return Edit(*_written(node), _layout(node, shown))


def _written(node: YamlNode) -> tuple[int, int]:
    """Where a node's text begins and ends, without the white space that YAML counts to the end of a block."""
    text = node.source.text
    end = node.end
    while end > node.start and text[end - 1] in " \t\r\n":
        end -= 1
    while end > node.start and _is_comment(text, node.start, end):
        end = text.rfind("\n", node.start, end)
        while end > node.start and text[end - 1] in " \t\r\n":
            end -= 1
    return node.start, end


def _is_comment(text: str, start: int, end: int) -> bool:
    """Whether the last line of a stretch is a comment: it speaks of what follows."""
    line = text.rfind("\n", start, end)
    return line >= 0 and text[line + 1 : end].lstrip().startswith("#")


def _layout(node: YamlNode, rows: list[str]) -> str:
    """Rows as they stood before: below each other with a dash, or in brackets."""
    text = node.source.text
    column = node.start - (text.rfind("\n", 0, node.start) + 1)
    is_block = text[node.start : node.start + 1] == "-"
    if not rows:
        return "[]"
    if is_block:
        return f"\n{' ' * column}".join(f"- {row}" for row in rows)
    if len(rows) == 1:
        return f"[{rows[0]}]"
    indent = " " * (_indent_of_line(text, node.start) + 2)
    return "[\n" + ",\n".join(f"{indent}  {row}" for row in rows) + f"\n{indent}]"


def _indent_of_line(text: str, at: int) -> int:
    begin = text.rfind("\n", 0, at) + 1
    return len(text[begin:at]) - len(text[begin:at].lstrip(" "))


def rewrite(path: Path, text: str, edits: Sequence[Edit]) -> None:
    """Write a file of tests with some rows replaced.

    Raises:
        PipelineError: the file cannot be written, has changed since it was read, or one stretch is to be replaced by two texts.
    """
    before = text.encode()
    for first, second in zip(ordered := sorted(set(edits), key=lambda e: e.start), ordered[1:], strict=False):
        if second.start < first.end:
            raise PipelineError.of(
                f"'{path}': rows that are used twice (an alias) are expected to be different ones",
                hint="write each test's rows by themselves",
            )
    for edit in reversed(ordered):
        text = text[: edit.start] + edit.text + text[edit.end :]
    try:
        if path.read_bytes() != before:
            raise PipelineError.of(f"'{path}' has changed since it was read: nothing was written to it", "run again")
        path.write_bytes(text.encode())
    except OSError as error:
        raise PipelineError.of(f"cannot write '{path}': {error.strerror}") from error
